"""The tile IR: structured SSA over tiles, one vocabulary for interpreter and code generators.

A ``Kernel`` is specialised: constexprs are bound, shapes are integers, calls to other kernels are
inlined. Operations sit in ``Block``s; loops, ifs and walks hold nested blocks whose values they
yield. Op names, operands and attributes are listed in ``OPS`` below and in docs/ir.md; nothing
here checks them (the builder does) and nothing here knows a target.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ferro.dsl.types import NOWHERE, DType, Span, TileType

_ids = itertools.count()


@dataclass(eq=False)
class Value:
    """One SSA value. ``name`` is the DSL variable it was first assigned to ("" if none)."""

    type: TileType
    name: str = ""
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __repr__(self) -> str:
        return f"%{self.name or self.id}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        # ids tell values of one process apart: one from another process takes a new one
        self.__dict__.update(state, id=next(_ids))


@dataclass(eq=False)
class Block:
    """A straight run of operations with parameters; ``results`` are the values it yields."""

    params: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


@dataclass(eq=False)
class Op:
    name: str
    args: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    span: Span = NOWHERE

    @property
    def result(self) -> Value:
        return self.results[0]


# Integer expressions over dimension and scalar names, used for extents, grids and ranges.
# ("const", 5) | ("name", "K") | (op, left, right) with op in + - * // % cdiv min max
Extent = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Pointer:
    """A buffer parameter: row-major, contiguous, ``extents`` elements per axis.

    ``access`` is "in" (tl.ptr), "out" (tl.out) or "inout" (tl.inout).
    """

    name: str
    dtype: DType
    extents: tuple[Extent, ...]
    access: str
    span: Span = NOWHERE


@dataclass(frozen=True, eq=False)
class Quantised:
    """A block-quantised matrix parameter of ``rows`` x ``cols``, blocks of 32 along a row.

    ``format`` "q8": weights (int8 and an f16 scale a block); "q4": weights of 4 bits (0..15, an f16
    scale and an f16 minimum a block); "a8": activations (int8, an f32 scale
    and the int32 sum of the 32 values a block). Its memory layout belongs to the target.
    """

    name: str
    format: str
    rows: Extent
    cols: Extent
    access: str = "in"
    span: Span = NOWHERE

    @property
    def extents(self) -> tuple[Extent, Extent]:
        return (self.rows, self.cols)


@dataclass(frozen=True, eq=False)
class Scalar:
    """A runtime scalar parameter; ``value`` is the SSA value that stands for it.

    ``lo`` and ``hi`` (inclusive, integers only) are checked at launch. ``implicit`` marks a
    dimension that is read off the arrays' shapes and never passed by the caller.
    """

    name: str
    value: Value
    lo: int | None = None
    hi: int | None = None
    implicit: bool = False
    span: Span = NOWHERE


Buffer = Pointer | Quantised


@dataclass(frozen=True, eq=False)
class Function:
    """An elementwise library function: scalar parameters and results, pure, no loops."""

    name: str
    body: Block


@dataclass(eq=False)
class Kernel:
    """A specialised kernel. ``constants`` holds every bound constexpr, ``schedule`` their names
    that may only change speed, ``grid`` the number of programs along each axis."""

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    constants: dict[str, int | float | str | bool]
    schedule: frozenset[str]
    grid: tuple[Extent, ...]
    body: Block
    functions: dict[str, Function]
    file: str
    source: str
    span: Span = NOWHERE

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def __str__(self) -> str:
        from ferro.dsl.printer import text

        return text(self)

    def __repr__(self) -> str:
        return f"<IR of kernel {self.name}>"


def walk(block: Block) -> Iterator[Op]:
    """Every operation of ``block`` and of the blocks nested in it, in program order."""
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from walk(inner)


# name: (operands, attributes, results and meaning). Elementwise operands of one op have equal
# shapes: the builder inserts `expand` and `broadcast`. "T" is any tile, "s" a scalar.
OPS: dict[str, tuple[str, str, str]] = {
    # sources
    "const": ("", "value", "scalar constant (int, float or bool of the result's dtype)"),
    "scalar": ("", "name", "the runtime scalar parameter of that name"),
    "program_id": ("", "axis", "i32 scalar, 0 <= result < grid[axis]"),
    "arange": ("", "start, size, axis", "i32[size]: start, start + 1, ...; `axis` labels it"),
    # shape; none of them moves data across elements except transpose, split, join
    "broadcast": ("x", "", "extents of 1 (or a scalar) stretched to the result's shape"),
    "expand": ("x", "axis", "inserts an axis of extent 1"),
    "reshape": ("x", "", "row-major reshape"),
    "transpose": ("x", "perm", "axes permuted: result axis i is x's axis perm[i]"),
    "split": ("x", "axis, how", "two tiles of half the extent; how = 'halves' | 'pairs'"),
    "join": ("a, b", "axis, how", "the inverse of split"),
    # memory. indices broadcast to the result's shape; mask and other are T of that shape
    "load": ("idx..., [mask], [other]", "buffer, rank, masked, other", "elements of a Pointer, or "
             "dequantised f32 elements of a q8 (float(q) * float(scale)) or a q4 (fma(float(q), "
             "float(scale), float(minimum))). f16 pointers give f16"),
    "store": ("idx..., value, [mask]", "buffer, rank, masked", "no result"),
    "load_block": ("rows i32[R], block i32 s, [mask bool[R]]", "buffer, masked",
                   "(i8[R, 32], f32[R]): block `block` of each row and its scale, of a q4 also its "
                   "minimum f32[R]; 0 where masked"),
    "store_block": ("rows i32[R], block i32 s, q i8[R, 32], scale f32[R], [mask]",
                    "buffer, masked", "writes an a8 block; the sum is the target's business"),
    # elementwise
    "neg abs not rint floor": ("x", "", "same type (not: bool or int; rint, floor: f32)"),
    "add sub mul min max": ("a, b", "", "same type; float min/max: NaN wins, +0 above -0"),
    "div mod": ("a, b", "", "integers only: truncate; x/0 = 0, x%0 = 0 (floats call 'div')"),
    "and or xor": ("a, b", "", "bool or integer"),
    "shl shr": ("a, b", "", "shift count mod 32; shr of i32 is arithmetic"),
    "lt le gt ge eq ne": ("a, b", "", "bool"),
    "fma": ("a, b, c", "", "f32, one rounding"),
    "where": ("cond, a, b", "", ""),
    "cast": ("x", "", "to the result's dtype by the rules of conversions"),
    "bitcast": ("x", "", "same size"),
    "call": ("args...", "function", "elementwise library function, f32"),
    # across elements
    "reduce": ("x, [mask]", "kind, axis, masked", "axis removed; kind = sum | max | min | argmax"),
    "partials": ("", "", "f32[..., 32] zeros: the state of a streaming sum"),
    "accumulate": ("state, x, [mask]", "axis, masked", "the state with x's axis added, element i "
                   "to partial i mod 32, ascending; x's extent there is a multiple of 32"),
    "finish": ("state", "", "the tree over the 32 partials: last axis removed"),
    "dot_i8": ("a i8[M, K], b i8[K, N]", "", "i32[M, N]"),
    "dot": ("a f32[M, K], b f32[K, N], acc f32[M, N]", "", "one fma per k, ascending"),
    "breakpoint": ("values...", "names, constants, buffers, within",
                   "no result; the interpreter stops here on request"),
    # control
    "for": ("start, stop, step, init...", "", "block(iv, carries...) -> carries; i32, step > 0"),
    "if": ("cond", "", "blocks then, else -> same types"),
    "walk": ("n, empty...", "size, when", "blocks: body(start, stop) -> values..., [when]; "
             "rule(old..., new...) -> merged. Chunks [start, stop) of `size` cover 0..n, ascending;"
             " the first is copied, one whose `when` (bool, shape a prefix of every value's) is "
             "false is skipped; results are `empty` where nothing was combined"),
}  # fmt: skip
