"""Builder: constants of a shape and operations that only rearrange elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from ferro.dsl.builder_core import Core, Operand, describe
from ferro.dsl.ir import Value
from ferro.dsl.static import Static
from ferro.dsl.types import DType, TileType, f32, i32

# An extent of a tile: an int, marked when it derives from a schedule constexpr.
Extent = int | Static


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

    def arange(self, start: Extent, stop: Extent, axis: str = "") -> Value:
        """i32[stop - start]; ``axis`` labels it for tuning (default: the current label)."""
        first, size = number(start), number(stop) - number(start)
        if size < 1:
            self.fail(
                "FER210",
                f"`tl.arange({start}, {stop})` is empty",
                help="the second bound must be greater than the first",
            )
        for element in (first, first + size - 1):
            self._fit(element, i32)
        mark = {"schedule": True} if derives(start) or derives(stop) else {}
        label = axis or self.label or f"axis{first}_{size}"
        kind = TileType(i32, (size,))
        return self.emit1("arange", [], kind, start=first, size=size, axis=label, **mark)

    def full(self, shape: Sequence[Extent], value: Operand, dtype: DType | None = None) -> Value:
        """A tile of ``shape`` filled with a scalar."""
        scalar = self.value(value, dtype)
        if dtype is not None and scalar.dtype is not dtype:
            self.fail(
                "FER201",
                f"`tl.full` of {dtype} got {scalar.type!r}",
                help=f"cast the value with `.to(tl.{dtype})`",
            )
        return self.broadcast_to(scalar, shape)

    def zeros(self, shape: Sequence[Extent], dtype: DType = f32) -> Value:
        """A tile of ``shape`` filled with zero (False for bool)."""
        zero: Operand = False if dtype.kind == "bool" else 0
        return self.full(shape, zero, dtype)

    def broadcast_to(self, x: Value, shape: Sequence[Extent]) -> Value:
        """``x`` stretched to a shape that the author wrote."""
        target = self.shape(shape)
        if self._joined(x, target) != target:
            self._too_small(x, target)
        while 0 < x.type.rank < len(target):
            x = self.expand(x, 0)
        if x.shape == target:
            return x
        axes = tuple(n for n, e in enumerate(shape) if derives(e))
        return self.emit1("broadcast", [x], x.type.with_shape(target), schedule_axes=axes)

    def shape(self, extents: Sequence[Extent]) -> tuple[int, ...]:
        """Extents as ints; CompileError if one is not positive."""
        shape = tuple(number(e) for e in extents)
        if min(shape, default=1) < 1:
            self.fail("FER213", f"a tile cannot have the shape {list(shape)}", help=_POSITIVE)
        return shape

    def expand(self, x: Value, axis: int) -> Value:
        """``x`` with an axis of extent 1 inserted before ``axis`` of the result."""
        axis = self.axis(axis, x.type.rank + 1)
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        return self.emit1("expand", [x], x.type.with_shape(shape), axis=axis)

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        """``x`` stretched to ``shape`` by the rules of numpy."""
        if x.shape == shape:
            return x
        if self._joined(x, shape) != shape:
            self._too_small(x, shape)
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

    def reshape(self, x: Value, shape: Sequence[Extent]) -> Value:
        """``x`` in row-major order with another shape; one extent may be -1."""
        target = tuple(number(e) for e in shape)
        marks = [derives(e) for e in shape]
        if target.count(-1) == 1:
            hole = target.index(-1)
            rest = math.prod(e for e in target if e != -1)
            target = tuple(x.type.size // rest if e == -1 and rest else e for e in target)
            marks[hole] = any(marks)
        if math.prod(target) != x.type.size or min(target, default=1) < 1:
            self.fail(
                "FER213",
                "reshape changes the number of elements",
                f"tile: {x.type!r} ({x.type.size} elements)",
                f"wanted: {[number(e) for e in shape]}",
                help="the product of the extents must stay the same",
            )
        if target == x.shape:
            return x
        axes = tuple(n for n, marked in enumerate(marks) if marked)
        return self.emit1("reshape", [x], x.type.with_shape(target), schedule_axes=axes)

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

    def _joined(self, x: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.common_shape("broadcast", x.shape, shape)

    def _too_small(self, x: Value, shape: tuple[int, ...]) -> NoReturn:
        self.fail(
            "FER211",
            "a tile cannot be broadcast to a smaller shape",
            f"tile: {x.type!r}",
            f"wanted: {list(shape)}",
            help="reduce or reshape it first",
        )

    def _check_how(self, how: str) -> None:
        if how not in ("halves", "pairs"):
            self.fail(
                "FER218", f"unknown way to split {how!r}", help='`how` is "halves" or "pairs"'
            )


_POSITIVE = "every extent is a positive compile-time int"


def number(extent: Extent) -> int:
    """An extent as an int."""
    return int(extent.value) if isinstance(extent, Static) else extent


def derives(extent: Extent) -> bool:
    """True if the extent derives from a schedule constexpr."""
    return isinstance(extent, Static) and extent.schedule


def join_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape of two shapes by numpy's rule, or None."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
