"""Builder: reductions, streaming sums, products and quantisation."""

from __future__ import annotations

from collections.abc import Sequence

from ferro.dsl.builder_core import Operand, describe
from ferro.dsl.builder_memory import BLOCK, Memory
from ferro.dsl.builder_shape import Extent
from ferro.dsl.ir import Value
from ferro.dsl.types import ARITHMETIC, TileType, f32, i8, i32

PARTIALS = 32
WORD = 4
LONGEST_SUM = 4096

# Below this a block's scale (amax / 127) would be subnormal.
_SMALLEST_AMAX = 127 * 2.0**-126


class Reductions(Memory):
    """``reduce``, ``partials`` / ``accumulate`` / ``finish``, ``dot``, ``quantize_i8``."""

    def reduce(self, kind: str, x: Value, axis: int = -1, mask: Operand | None = None) -> Value:
        """``x`` with ``axis`` removed; kind is sum, max, min or argmax (which gives i32)."""
        axis = self.axis(axis, x.type.rank, x)
        if x.dtype not in ARITHMETIC:
            self.fail(
                "FER205",
                f"`tl.{kind}` is not defined on {x.dtype}",
                f"tile: {x.type!r}",
                help="cast with `.to(tl.i32)` or `.to(tl.f32)` first",
            )
        if kind == "sum" and x.dtype is f32 and x.shape[axis] > LONGEST_SUM:
            self.fail(
                "FER220",
                f"a sum over {x.shape[axis]} elements has no canonical order",
                f"tile: {x.type!r}",
                help=f"sums over more than {LONGEST_SUM} elements go in "
                f"`for c in tl.chunks(n, {LONGEST_SUM})`",
            )
        args = [x]
        if mask is not None:
            args.append(self._like("mask", self.mask("`mask`", mask), x))
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        dtype = i32 if kind == "argmax" else x.dtype
        return self.emit1(
            "reduce", args, TileType(dtype, shape), kind=kind, axis=axis, masked=mask is not None
        )

    def partials(self, prefix: Sequence[Extent] = ()) -> Value:
        """f32[prefix..., 32] zeros: the state of a streaming sum."""
        return self.emit1("partials", [], TileType(f32, (*self.shape(prefix), PARTIALS)))

    def accumulate(
        self, state: Value, x: Value, axis: int = -1, mask: Operand | None = None
    ) -> Value:
        """``state`` with ``x`` added: element i of ``axis`` to partial i mod 32, ascending."""
        axis = self.axis(axis, x.type.rank, x)
        self._f32("tl.accumulate", [state, x])
        if x.shape[axis] % PARTIALS:
            self.fail(
                "FER221",
                f"`tl.accumulate` along an extent of {x.shape[axis]}",
                f"tile: {x.type!r}",
                help="the extent must be a multiple of 32",
            )
        shape = (*x.shape[:axis], *x.shape[axis + 1 :], PARTIALS)
        if state.shape != shape:
            self.fail(
                "FER222",
                "state and tile of `tl.accumulate` do not match",
                f"state: {state.type!r}",
                f"tile: {x.type!r}, axis {axis}",
                help=f"make the state with `tl.partials({list(shape[:-1])})`",
            )
        args = [state, x]
        if mask is not None:
            args.append(self._like("mask", self.mask("`mask`", mask), x))
        return self.emit1("accumulate", args, state.type, axis=axis, masked=mask is not None)

    def finish(self, state: Value) -> Value:
        """The sum over the 32 partials, pairing i with i+16, then +8, +4, +2, +1."""
        if state.dtype is not f32 or state.shape[-1:] != (PARTIALS,):
            self.fail(
                "FER222",
                "`tl.finish` takes the state of a streaming sum",
                f"got: {state.type!r}",
                help="make the state with `tl.partials()`",
            )
        return self.emit1("finish", [state], state.type.with_shape(state.shape[:-1]))

    def dot_i8(self, a: Value, b: Value) -> Value:
        """i8[M, K] x i8[K, N] -> i32[M, N]; K is a multiple of 4."""
        if a.dtype is not i8 or b.dtype is not i8:
            self.fail(
                "FER223",
                "`tl.dot_i8` multiplies i8 tiles",
                *describe([a, b]),
                help="`tl.quantize_i8` and `tl.load_block` give i8 tiles",
            )
        shape = self._product("tl.dot_i8", a, b)
        if a.shape[1] % WORD:
            self.fail(
                "FER226",
                f"`tl.dot_i8` along an extent of {a.shape[1]}",
                *describe([a, b]),
                help="int8 values are multiplied four at a time: pad with zeros to a multiple of 4",
            )
        return self.emit1("dot_i8", [a, b], TileType(i32, shape))

    def dot(self, a: Value, b: Value, acc: Value | None = None) -> Value:
        """f32[M, K] x f32[K, N] + acc -> f32[M, N], one fma per k, ascending."""
        self._f32("tl.dot", [a, b] if acc is None else [a, b, acc])
        shape = self._product("tl.dot", a, b)
        if acc is None:
            acc = self.broadcast(self.const(0.0, f32), shape)
        if acc.shape != shape:
            self.fail(
                "FER224",
                "the accumulator of `tl.dot` has the wrong shape",
                f"acc: {acc.type!r}",
                f"product: {list(shape)}",
                help=f"make it with `tl.zeros({list(shape)}, tl.f32)`",
            )
        return self.emit1("dot", [a, b, acc], acc.type)

    def quantize_i8(self, x: Value) -> tuple[Value, Value]:
        """(i8[..., 32], f32[...]) of f32[..., 32]: one scale a block along the last axis.

        scale = amax/127, q = rint(x * (127/amax)). A zero block and one whose scale would be
        subnormal give 0; NaN or Inf in a block gives a NaN scale and q = 0.
        """
        self._f32("tl.quantize_i8", [x])
        if x.shape[-1:] != (BLOCK,):
            self.fail(
                "FER225",
                "`tl.quantize_i8` works on blocks of 32",
                f"tile: {x.type!r}",
                help=_blocks_of(x),
            )
        # without signs floats are in the order of their bits, and a maximum of integers is cheaper
        amax = self.bitcast(self.reduce("max", self.bitcast(self.abs(x), i32), -1), f32)
        small = self.lt(amax, _SMALLEST_AMAX)
        good = self.and_(self.ge(amax, _SMALLEST_AMAX), self.lt(amax, float("inf")))
        safe = self.where(good, amax, 1.0)
        bad_scale = self.where(small, 0.0, float("nan"))
        scale = self.where(good, self.div(safe, 127.0), bad_scale)
        factor = self.expand(self.div(127.0, safe), amax.type.rank)
        q = self.where(self.expand(good, amax.type.rank), self.rint(self.mul(x, factor)), 0.0)
        return self.cast(q, i8), scale

    def _product(self, what: str, a: Value, b: Value) -> tuple[int, ...]:
        if a.type.rank != 2 or b.type.rank != 2 or a.shape[1] != b.shape[0]:
            self.fail(
                "FER224",
                f"shapes of `{what}` do not match",
                *describe([a, b]),
                help="the product of [M, K] and [K, N] is [M, N]: transpose with `.T`?",
            )
        return (a.shape[0], b.shape[1])

    def _f32(self, what: str, values: Sequence[Value]) -> None:
        if any(v.dtype is not f32 for v in values):
            self.fail(
                "FER223",
                f"`{what}` is defined on f32",
                *([f"tile: {values[0].type!r}"] if len(values) == 1 else describe(values)),
                help="cast with `.to(tl.f32)`",
            )

    def _like(self, what: str, value: Value, x: Value) -> Value:
        if self.common_shape(f"`{what}` and the tile", value.shape, x.shape) != x.shape:
            self.fail(
                "FER211",
                f"`{what}` has more elements than the tile",
                f"{what}: {value.type!r}",
                f"tile: {x.type!r}",
                help=f"`{what}` must broadcast to the tile's shape",
            )
        return self.broadcast(value, x.shape)


def _blocks_of(x: Value) -> str:
    *rest, last = x.shape or (0,)
    if last % BLOCK or not last:
        return "load tiles whose last axis is 32, as in `kb * 32 + tl.arange(0, 32)`"
    shape = ", ".join(map(str, (*rest, last // BLOCK, BLOCK)))
    return f"make the last axis 32, for example with `x.reshape({shape})`"
