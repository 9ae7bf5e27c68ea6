"""Every operation of the language as an expression over tiles x and y of shape [A, B]."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ferro.dsl import kernel, tl
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.types import DTYPES, TileType

_SHARED = """
x + y; x - y; x * y; tl.minimum(x, y); tl.maximum(x, y); (x < y).to(i32); (x >= y).to(f32)
tl.where(x < y, x, y); tl.sum(x, axis=0); tl.sum(x, axis=1); tl.sum(x, axis=0, mask=x < y)
tl.max(x, axis=0); tl.max(x, axis=0, mask=x < y); tl.min(x, axis=1); tl.argmax(x, axis=0)
tl.argmax(x, axis=1); tl.argmax(x, axis=1, mask=x < y); x.to(f16); x.to(i8); x.to(u16)
"""
_INTEGERS = """
x // y; x % y; x // 7; x % 7; x << y; x >> y; x >> 33; x & y; x | y; x ^ y; ~x; x.to(u8)
x.to(i16); x.to(f32); x.bitcast(f32); tl.cdiv(x & 1023, 7)
"""
_SIGNED = "-x; abs(x); x // -3; x % -3; x.to(u32)"
_FLOATS = """
-x; x / y; tl.fma(x, y, 0.5); abs(x); tl.rint(x); tl.floor(x); tl.clamp(x, -1.0, 1.0); tl.sqrt(x)
tl.rsqrt(x); tl.exp(x); tl.log(x); tl.sin(x); tl.cos(x); tl.tanh(x); tl.erf(x); tl.sigmoid(x)
(x == y).to(u32); ((x < y) & (x > 0.0)).to(f32); ((x < y) | (x > 0.0)).to(i32); (~(x != y)).to(i8)
tl.where(x < y, x > 0.0, y > 0.0).to(f32); x.to(i32); x.to(u32); x.to(i16); x.to(u8); x.bitcast(i32)
x.to(f16).to(f32); x.to(i8).to(f32); x.T; tl.permute(x, 1, 0) + 1.0; x.reshape(B, A)
x.reshape(A * B); (x * y).reshape(B, A); tl.exp(x).T; x[:, None, :]; x[:, :, None] * 2.0
x - tl.max(x, axis=1)[:, None]; x.T + tl.sum(x, axis=1)[None, :]; tl.sum(x.reshape(A * B))
tl.sum(x, axis=1, mask=tl.arange(0, B) < 3); tl.sum(tl.sum(x, axis=1)); tl.sum(x * y, axis=1)
tl.dot(x, y.T); tl.dot(x.T, y); tl.dot(x, x.T, tl.dot(y, y.T)); tl.join(x, y, axis=0)
tl.join(x, y, axis=1); tl.join(x, y, axis=0, how="pairs"); tl.join(x, y, axis=1, how="pairs")
tl.broadcast_to(tl.sum(x, axis=1)[:, None], [A, 3]); x + tl.arange(0, B).to(f32)
x * tl.arange(0, A).to(f32)[:, None]; tl.zeros([A, B]) + x; tl.full([A, B], 2.0) * x
parts(x, 0, "halves"); parts(x, 1, "halves"); parts(x, 0, "pairs"); parts(x, 1, "pairs")
"""
_BYTES = """
x.to(i32); x.to(f32); x.to(f16); x.to(i16); x.bitcast(u8); x.T; x.reshape(B, A)
tl.where(x.to(i32) < y.to(i32), x, y); tl.join(x, y, axis=1); tl.dot_i8(x, y.T); tl.dot_i8(x.T, y)
"""
_HALVES = """
x.to(f32); x.to(i32); x.to(i8); x.to(u8); x.bitcast(u16); x.T
tl.where(x.to(f32) < y.to(f32), x, y)
"""


@kernel
def parts(x, axis, how):
    first, second = tl.split(x, axis=axis, how=how)
    return first - second * 2.0


def _each(*texts: str) -> list[str]:
    lines = [line for text in texts for line in text.strip().splitlines()]
    return [expression.strip() for line in lines for expression in line.split(";")]


EXPRESSIONS: dict[str, list[str]] = {
    "f32": _each(_SHARED, _FLOATS),
    "i32": _each(_SHARED, _INTEGERS, _SIGNED),
    "u32": _each(_SHARED, _INTEGERS, "x.to(i32)"),
    "i8": _each(_BYTES),
    "u8": _each("x.to(i32); x.to(f32); x.to(i8)"),
    "i16": _each("x.to(i32); x.to(f32); x.to(i8); x.to(f16)"),
    "u16": _each("x.to(i32); x.to(f32); x.bitcast(f16).to(f32)"),
    "f16": _each(_HALVES),
}


def expressions(dtype: str, shape: tuple[int, int]) -> list[str]:
    """The expressions that are defined for a shape."""
    a, b = shape

    def fits(text: str) -> bool:
        if text.startswith("parts(x, "):
            return shape[int(text[9])] % 2 == 0
        if text.startswith("tl.dot_i8"):
            return (a if ".T, y" in text else b) % 4 == 0
        return True

    return [text for text in EXPRESSIONS[dtype] if fits(text)]


@lru_cache(maxsize=None)
def kernel_of(dtype: str, shape: tuple[int, int], texts: tuple[str, ...]) -> KernelDefinition:
    """A kernel that stores expression n in the buffer ``o<n>``."""
    types = [_type_of(dtype, shape, text) for text in texts]
    outputs = "".join(f", o{n}: tl.out[{_declared(t)}]" for n, t in enumerate(types))
    lines = [
        f"tl.store(o{n}[{_index(t.shape)}], {text})"
        for n, (text, t) in enumerate(zip(texts, types, strict=True))
    ]
    return _kernel(dtype, shape, outputs, lines)


def outputs(definition: KernelDefinition) -> dict[str, np.ndarray]:
    """Zeroed arrays for what a kernel writes."""
    return {
        b.name: np.zeros([e[1] for e in b.extents], b.dtype.numpy)  # type: ignore[union-attr]
        for b in definition.specialise().buffers
        if b.access == "out"
    }


def _kernel(dtype: str, shape: tuple[int, int], outputs: str, lines: list[str]) -> KernelDefinition:
    a, b = shape
    text = [
        f"def f(x_: tl.ptr[{dtype}, {a}, {b}], y_: tl.ptr[{dtype}, {a}, {b}]{outputs},",
        f"      A: tl.const = {a}, B: tl.const = {b}):",
        "    at = tl.arange(0, A)[:, None]",
        "    x = tl.load(x_[at, tl.arange(0, B)])",
        "    y = tl.load(y_[at, tl.arange(0, B)])",
        *(f"    {line}" for line in lines),
    ]
    return KernelDefinition.from_source("\n".join(text) + "\n", "op.py", {"parts": parts})


@lru_cache(maxsize=None)
def _type_of(dtype: str, shape: tuple[int, int], text: str) -> TileType:
    made = _kernel(dtype, shape, "", [f"z = {text}", "breakpoint()"]).specialise()
    shown = next(op for op in made.body.ops if op.name == "breakpoint")
    return shown.args[shown.attrs["names"].index("z")].type


def _declared(type: TileType) -> str:
    return ", ".join([type.dtype.name, *map(str, type.shape or (1,))])


def _index(shape: tuple[int, ...]) -> str:
    rank = len(shape)
    axes = [", ".join(":" if m == n else "None" for m in range(rank)) for n in range(rank)]
    return ", ".join(f"tl.arange(0, {n})[{a}]" for n, a in zip(shape, axes, strict=True)) or "0"


def contents(rng: np.random.Generator, dtype: str, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Values of all sizes, with the special ones among them."""
    kind = DTYPES[dtype].numpy
    chosen = rng.random(shape)
    if kind.kind == "f":
        values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
        for n, special in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan, 6e4)):
            values[(chosen > 0.02 * n) & (chosen < 0.02 * n + 0.02)] = special
        return values.astype(kind)
    limits = np.iinfo(kind)
    values = rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    values[chosen < 0.05] = 0
    values[(chosen > 0.05) & (chosen < 0.1)] = limits.min
    small = (chosen > 0.1) & (chosen < 0.3)
    values[small] %= 9
    return values
