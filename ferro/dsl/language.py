"""The names of the kernel language, as real Python objects: what ``tl`` is in a kernel's file.

They have a meaning inside of a ``@kernel`` only, where the specialiser reads them. Calling one
from ordinary Python raises ``RuntimeError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from ferro.dsl.types import f16, f32, i8, i16, i32, u8, u16, u32


@dataclass(frozen=True)
class Builtin:
    """A function of the language. ``signature`` is how an author writes a call of it."""

    name: str
    signature: str
    summary: str

    def __call__(self, *args: Any, **keywords: Any) -> NoReturn:
        raise RuntimeError(
            f"`{self.signature}` can only be used inside of a function under `@kernel`, "
            "which is compiled and never runs as Python"
        )


@dataclass(frozen=True)
class Annotation:
    """The kind of a kernel's parameter, with what stands in its brackets."""

    kind: str
    items: tuple[Any, ...] = ()

    def __getitem__(self, items: Any) -> Annotation:
        return Annotation(self.kind, items if isinstance(items, tuple) else (items,))


BUILTINS: dict[str, Builtin] = {}


def _builtin(name: str, arguments: str, summary: str, prefix: str = "tl.") -> Builtin:
    BUILTINS[name] = Builtin(name, f"{prefix}{name}({arguments})", summary)
    return BUILTINS[name]


ptr = Annotation("ptr")
out = Annotation("out")
inout = Annotation("inout")
q8 = Annotation("q8")
q4 = Annotation("q4")
a8 = Annotation("a8")
a8_out = Annotation("a8_out")
const = Annotation("const")
schedule = Annotation("schedule")

inf = float("inf")
nan = float("nan")

program_id = _builtin("program_id", "axis, count", "this program's number among `count`")
block = _builtin("block", "axis, extent, size", "this program's `size` indices of 0..extent")
arange = _builtin("arange", "start, stop", "i32 tile start, start + 1, ...")
zeros = _builtin("zeros", "shape, dtype=tl.f32", "a tile of zeros")
full = _builtin("full", "shape, value, dtype=None", "a tile filled with a scalar")

reshape = _builtin("reshape", "x, shape", "row-major reshape")
broadcast_to = _builtin("broadcast_to", "x, shape", "extents of 1 stretched to `shape`")
trans = _builtin("trans", "x", "the last two axes exchanged")
permute = _builtin("permute", "x, axes", "axis i of the result is axis axes[i] of x")
split = _builtin("split", 'x, axis=-1, how="halves"', "two tiles: halves, or even and odd (pairs)")
join = _builtin("join", 'a, b, axis=-1, how="halves"', "the inverse of split")

load = _builtin("load", "p[index...], mask=None, other=None", "elements of a buffer")
store = _builtin("store", "p[index...], value, mask=None", "write elements of a buffer")
load_block = _builtin(
    "load_block",
    "w, rows, block, mask=None",
    "(i8[R, 32], f32[R]): values and scales of a block; of `q4` also its minima f32[R]",
)
store_block = _builtin(
    "store_block", "y, rows, block, q, scale, mask=None", "write a block of an `a8_out` matrix"
)

fma = _builtin("fma", "a, b, c", "a * b + c, rounded once")
minimum = _builtin("minimum", "a, b", "element by element; NaN wins, -0 below +0")
maximum = _builtin("maximum", "a, b", "element by element; NaN wins, +0 above -0")
add = _builtin("add", "a, b", "a + b; a combine rule")
abs = _builtin("abs", "x", "absolute value")
rint = _builtin("rint", "x", "to the nearest integer, ties to even")
floor = _builtin("floor", "x", "to the next integer below")
clamp = _builtin("clamp", "x, lo, hi", "minimum(maximum(x, lo), hi)")
where = _builtin("where", "cond, a, b", "a where cond holds, else b")
bitcast = _builtin("bitcast", "x, dtype", "the same bits as another dtype")
cdiv = _builtin("cdiv", "a, b", "a / b rounded up, for a >= 0 and b > 0")

div = _builtin("div", "a, b", "a / b of f32")
sqrt = _builtin("sqrt", "x", "square root")
rsqrt = _builtin("rsqrt", "x", "1 / square root")
exp = _builtin("exp", "x", "e to the power x")
log = _builtin("log", "x", "natural logarithm")
sin = _builtin("sin", "x", "sine")
cos = _builtin("cos", "x", "cosine")
tanh = _builtin("tanh", "x", "hyperbolic tangent")
erf = _builtin("erf", "x", "error function")
sigmoid = _builtin("sigmoid", "x", "1 / (1 + exp(-x))")

sum = _builtin("sum", "x, axis=-1, mask=None", "sum along an axis in the canonical order")
max = _builtin("max", "x, axis=-1, mask=None", "greatest element along an axis")
min = _builtin("min", "x, axis=-1, mask=None", "least element along an axis")
argmax = _builtin("argmax", "x, axis=-1, mask=None", "lowest index of the greatest element")
partials = _builtin("partials", "prefix=[]", "the state of a streaming sum: f32[prefix..., 32]")
accumulate = _builtin("accumulate", "state, x, axis=-1, mask=None", "a streaming sum goes on")
finish = _builtin("finish", "state", "the value of a streaming sum")
dot_i8 = _builtin("dot_i8", "a, b", "i8[M, K] x i8[K, N] -> i32[M, N]")
dot = _builtin("dot", "a, b, acc=None", "f32[M, K] x f32[K, N] + acc, one fma per k")
quantize_i8 = _builtin("quantize_i8", "x", "(i8[..., 32], f32[...]) of f32[..., 32]")

chunks = _builtin("chunks", "n, size", "an ordered walk: `for c in tl.chunks(n, size)`")
combine = _builtin("combine", "rule, values..., when=None, empty=0.0", "closes a `tl.chunks` loop")
static_range = _builtin("static_range", "start, stop, step", "an unrolled loop")
static_assert = _builtin("static_assert", 'condition, "message"', "checked at specialisation")

# Functions of Python that kernels may use, by their bare names.
PYTHON: dict[str, Builtin] = {
    "range": Builtin("range", "range(start, stop, step)", "a counted loop"),
    "min": Builtin("scalar_min", "min(a, b, ...)", "least of some scalars"),
    "max": Builtin("scalar_max", "max(a, b, ...)", "greatest of some scalars"),
    "abs": BUILTINS["abs"],
    "breakpoint": Builtin("breakpoint", "breakpoint()", "the interpreter stops here on request"),
}

# What the elementwise op `call` may name: functions written in the language itself.
LIBRARY = ("div", "sqrt", "rsqrt", "exp", "log", "sin", "cos", "tanh", "erf", "sigmoid")

__all__ = [
    "BUILTINS",
    "LIBRARY",
    "PYTHON",
    "Annotation",
    "Builtin",
    "f16",
    "f32",
    "i8",
    "i16",
    "i32",
    "u8",
    "u16",
    "u32",
]
