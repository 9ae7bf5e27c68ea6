"""Builder: constants of a shape and operations that only rearrange elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ferro.dsl.builder_core import Core, Operand, describe
from ferro.dsl.ir import Value
from ferro.dsl.types import DType, TileType, f32, i32


class Shapes(Core):
    """``arange``, ``full``, broadcasting, reshape, transpose, split and join."""

    def program_id(self, axis: int) -> Value:
        """i32 scalar: the number of this program along ``axis``."""
        return self.emit1("program_id", [], TileType(i32), axis=axis)

    def scalar(self, name: str, dtype: DType) -> Value:
        """The runtime scalar parameter ``name``."""
        value = self.emit1("scalar", [], TileType(dtype), name=name)
        value.name = value.name or name
        return value

    def arange(self, start: int, stop: int, axis: str = "") -> Value:
        """i32[stop - start]; ``axis`` labels it for tuning (default: the current label)."""
        size = stop - start
        if size < 1:
            self.fail(
                "FER210",
                f"`tl.arange({start}, {stop})` is empty",
                help="the second bound must be greater than the first",
            )
        label = axis or self.label or f"axis{start}_{size}"
        return self.emit1("arange", [], TileType(i32, (size,)), start=start, size=size, axis=label)

    def full(self, shape: Sequence[int], value: Operand, dtype: DType | None = None) -> Value:
        """A tile of ``shape`` filled with a scalar."""
        scalar = self.value(value, dtype)
        if dtype is not None and scalar.dtype is not dtype:
            self.fail(
                "FER201",
                f"`tl.full` of {dtype} got a {scalar.type!r}",
                help=f"cast the value with `.to(tl.{dtype})`",
            )
        return self.broadcast(scalar, tuple(shape))

    def zeros(self, shape: Sequence[int], dtype: DType = f32) -> Value:
        """A tile of ``shape`` filled with zero (False for bool)."""
        zero: Operand = False if dtype.kind == "bool" else 0
        return self.full(shape, zero, dtype)

    def expand(self, x: Value, axis: int) -> Value:
        """``x`` with an axis of extent 1 inserted before ``axis`` of the result."""
        axis = self.axis(axis, x.type.rank + 1)
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        return self.emit1("expand", [x], x.type.with_shape(shape), axis=axis)

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        """``x`` stretched to ``shape`` by the rules of numpy."""
        if x.shape == shape:
            return x
        if self.common_shape("broadcast", x.shape, shape) != shape:
            self.fail(
                "FER211",
                "a tile cannot be broadcast to a smaller shape",
                f"tile: {x.type!r}",
                f"wanted: {list(shape)}",
                help="reduce or reshape it first",
            )
        while 0 < x.type.rank < len(shape):
            x = self.expand(x, 0)
        return x if x.shape == shape else self.emit1("broadcast", [x], x.type.with_shape(shape))

    def broadcast_all(self, what: str, values: Sequence[Value]) -> tuple[Value, ...]:
        """All values stretched to their common shape; CompileError if there is none."""
        shape: tuple[int, ...] = ()
        for value in values:
            joined = join_shapes(shape, value.shape)
            if joined is None:
                self.fail(
                    "FER212",
                    f"shapes of {what} do not broadcast",
                    *describe(values),
                    help="extents must be equal or 1, counted from the last axis: insert an axis "
                    "with `[:, None]`",
                )
            shape = joined
        return tuple(self.broadcast(v, shape) for v in values)

    def common_shape(self, what: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that both broadcast to; CompileError if there is none."""
        joined = join_shapes(a, b)
        if joined is None:
            self.fail(
                "FER212",
                f"shapes of {what} do not broadcast",
                f"left: {list(a)}",
                f"right: {list(b)}",
                help="extents must be equal or 1",
            )
        return joined

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """``x`` in row-major order with another shape; one extent may be -1."""
        target = tuple(shape)
        if target.count(-1) == 1:
            rest = math.prod(e for e in target if e != -1)
            fill = x.type.size // rest if rest else 0
            target = tuple(fill if e == -1 else e for e in target)
        if math.prod(target) != x.type.size or min(target, default=1) < 1:
            self.fail(
                "FER213",
                "reshape changes the number of elements",
                f"tile: {x.type!r} ({x.type.size} elements)",
                f"wanted: {list(shape)}",
                help="the product of the extents must stay the same",
            )
        return x if target == x.shape else self.emit1("reshape", [x], x.type.with_shape(target))

    def transpose(self, x: Value, perm: Sequence[int] | None = None) -> Value:
        """Axes permuted; without ``perm`` the last two are exchanged."""
        rank = x.type.rank
        if perm is None:
            if rank < 2:
                self.fail(
                    "FER214",
                    "a transpose needs at least two axes",
                    f"tile: {x.type!r}",
                    help="insert an axis with `[:, None]` or `[None, :]`",
                )
            perm = (*range(rank - 2), rank - 1, rank - 2)
        order = tuple(perm)
        if sorted(order) != list(range(rank)):
            self.fail(
                "FER214",
                f"{list(order)} is no permutation of the axes 0 to {rank - 1}",
                f"tile: {x.type!r}",
                help="name every axis once",
            )
        if order == tuple(range(rank)):
            return x
        shape = tuple(x.shape[p] for p in order)
        return self.emit1("transpose", [x], x.type.with_shape(shape), perm=order)

    def split(self, x: Value, axis: int = -1, how: str = "halves") -> tuple[Value, Value]:
        """Two tiles of half the extent: first and second "halves", or even and odd of "pairs"."""
        axis = self.axis(axis, x.type.rank, x)
        self._check_how(how)
        if x.shape[axis] % 2:
            self.fail(
                "FER215",
                f"cannot split axis {axis} of odd extent {x.shape[axis]}",
                f"tile: {x.type!r}",
                help="the extent must be even",
            )
        shape = (*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])
        half = x.type.with_shape(shape)
        a, b = self.emit("split", [x], [half, half], axis=axis, how=how)
        return a, b

    def join(self, a: Value, b: Value, axis: int = -1, how: str = "halves") -> Value:
        """The inverse of ``split``."""
        axis = self.axis(axis, a.type.rank, a)
        self._check_how(how)
        if a.type != b.type:
            self.fail(
                "FER216",
                "`tl.join` needs two tiles of one type",
                *describe([a, b]),
                help="cast or broadcast one of them",
            )
        shape = (*a.shape[:axis], a.shape[axis] * 2, *a.shape[axis + 1 :])
        return self.emit1("join", [a, b], a.type.with_shape(shape), axis=axis, how=how)

    def axis(self, axis: int, rank: int, x: Value | None = None) -> int:
        """``axis`` counted from the front; CompileError if it is out of range."""
        if not -rank <= axis < rank:
            notes = [f"tile: {x.type!r}"] if x is not None else []
            valid = f"axes go from 0 to {rank - 1}" if rank else "a scalar has no axes"
            self.fail("FER217", f"axis {axis} is out of range", *notes, help=valid)
        return axis % rank

    def _check_how(self, how: str) -> None:
        if how not in ("halves", "pairs"):
            self.fail(
                "FER218", f"unknown way to split {how!r}", help='`how` is "halves" or "pairs"'
            )


def join_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape of two shapes by numpy's rule, or None."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
