"""Pure operations on arrays that carry program axes.

A value of type ``T[s0, s1, ...]`` is an array ``[p0, ..., s0, s1, ...]`` with one leading axis for
each grid axis. Any extent may be 1 in place of the true one: the value then does not depend on the
programs along that axis (or is constant along that tile axis), and numpy broadcasts it. Only
operations that need an axis in full stretch it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ferro.dsl import exact
from ferro.dsl.ir import Op

Array = NDArray[Any]
Arrays = tuple[Array, ...]


@dataclass(frozen=True)
class Space:
    """The box of programs that run together: ``shape[i]`` programs from ``start[i]`` on along
    each grid axis."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def scalar(self, value: int | float | bool, dtype: np.dtype[Any]) -> Array:
        """A value that is the same for all programs."""
        return np.full((1,) * self.rank, value, dtype)

    def program_id(self, axis: int) -> Array:
        """i32 numbers of the programs along a grid axis."""
        shape = [1] * self.rank
        shape[axis] = self.shape[axis]
        first = self.start[axis]
        return np.arange(first, first + self.shape[axis], dtype=np.int32).reshape(shape)

    def mask(self, programs: Array, rank: int) -> Array:
        """A bool for each program, shaped to broadcast with tiles of ``rank``."""
        return programs.reshape(programs.shape + (1,) * rank)

    def stretch(self, x: Array, axis: int, extent: int) -> Array:
        """``x`` with tile axis ``axis`` in full."""
        at = self.rank + axis
        if x.shape[at] == extent:
            return x
        return np.broadcast_to(x, (*x.shape[:at], extent, *x.shape[at + 1 :]))

    def tile(self, x: Array, shape: tuple[int, ...]) -> Array:
        """``x`` with all tile axes in full."""
        return np.broadcast_to(x, (*x.shape[: self.rank], *shape))


Operation = Callable[[Space, Op, Arrays], Arrays]
OPERATIONS: dict[str, Operation] = {}


def _operation(name: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        OPERATIONS[name] = function
        return function

    return register


# -------------------------------------------------------------------------------- elementwise

ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "neg": np.negative, "abs": np.abs, "not": np.invert, "rint": np.rint, "floor": np.floor,
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "min": exact.minimum, "max": exact.maximum, "div": exact.divide, "mod": exact.modulo,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": exact.shift_left, "shr": exact.shift_right,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "fma": exact.fused, "where": np.where,
}  # fmt: skip


def _elementwise(function: Callable[..., Array]) -> Operation:
    def operation(space: Space, op: Op, args: Arrays) -> Arrays:
        return (function(*args),)

    return operation


OPERATIONS.update((name, _elementwise(f)) for name, f in ELEMENTWISE.items())


@_operation("cast")
def _cast(space: Space, op: Op, args: Arrays) -> Arrays:
    return (exact.cast(args[0], op.result.dtype.numpy),)


@_operation("bitcast")
def _bitcast(space: Space, op: Op, args: Arrays) -> Arrays:
    return (args[0].view(op.result.dtype.numpy),)


# ------------------------------------------------------------------------- sources and shapes


@_operation("const")
def _const(space: Space, op: Op, args: Arrays) -> Arrays:
    return (space.scalar(op.attrs["value"], op.result.dtype.numpy),)


@_operation("program_id")
def _program_id(space: Space, op: Op, args: Arrays) -> Arrays:
    return (space.program_id(op.attrs["axis"]),)


@_operation("arange")
def _arange(space: Space, op: Op, args: Arrays) -> Arrays:
    start, size = op.attrs["start"], op.attrs["size"]
    return (np.arange(start, start + size, dtype=np.int32).reshape((1,) * space.rank + (size,)),)


@_operation("broadcast")
def _broadcast(space: Space, op: Op, args: Arrays) -> Arrays:
    missing = op.result.type.rank - op.args[0].type.rank
    programs, tile = args[0].shape[: space.rank], args[0].shape[space.rank :]
    return (args[0].reshape(programs + (1,) * missing + tile),)


@_operation("expand")
def _expand(space: Space, op: Op, args: Arrays) -> Arrays:
    shape, axis = args[0].shape, space.rank + op.attrs["axis"]
    return (args[0].reshape(shape[:axis] + (1,) + shape[axis:]),)


@_operation("reshape")
def _reshape(space: Space, op: Op, args: Arrays) -> Arrays:
    programs, tile = args[0].shape[: space.rank], args[0].shape[space.rank :]
    shape = op.result.shape
    if all(extent == 1 for extent in tile):
        return (args[0].reshape(programs + (1,) * len(shape)),)
    return (space.tile(args[0], op.args[0].shape).reshape(programs + shape),)


@_operation("transpose")
def _transpose(space: Space, op: Op, args: Arrays) -> Arrays:
    lead = space.rank
    return (args[0].transpose(*range(lead), *(lead + axis for axis in op.attrs["perm"])),)


@_operation("split")
def _split(space: Space, op: Op, args: Arrays) -> Arrays:
    axis = op.attrs["axis"]
    extent = op.args[0].shape[axis]
    rows = np.moveaxis(space.stretch(args[0], axis, extent), space.rank + axis, -1)
    if op.attrs["how"] == "halves":
        halves = (rows[..., : extent // 2], rows[..., extent // 2 :])
    else:
        halves = (rows[..., 0::2], rows[..., 1::2])
    return tuple(np.moveaxis(half, -1, space.rank + axis) for half in halves)


@_operation("join")
def _join(space: Space, op: Op, args: Arrays) -> Arrays:
    axis = op.attrs["axis"]
    full = (space.stretch(x, axis, op.args[0].shape[axis]) for x in args)
    halves = [np.moveaxis(x, space.rank + axis, -1) for x in np.broadcast_arrays(*full)]
    if op.attrs["how"] == "halves":
        joined = np.concatenate(halves, axis=-1)
    else:
        joined = np.stack(halves, axis=-1).reshape(*halves[0].shape[:-1], -1)
    return (np.moveaxis(joined, -1, space.rank + axis),)


# ----------------------------------------------------------------------------- across elements

_REDUCTIONS: dict[str, Callable[[Array, int], Array]] = {
    "sum": exact.reduce_sum,
    "max": exact.reduce_max,
    "min": exact.reduce_min,
    "argmax": exact.reduce_argmax,
}


def _identity(kind: str, dtype: np.dtype[Any]) -> int | float:
    if kind == "sum":
        return 0
    if dtype.kind == "f":
        return np.inf if kind == "min" else -np.inf
    return int(np.iinfo(dtype).max if kind == "min" else np.iinfo(dtype).min)


@_operation("reduce")
def _reduce(space: Space, op: Op, args: Arrays) -> Arrays:
    kind, axis, x = op.attrs["kind"], op.attrs["axis"], args[0]
    if op.attrs["masked"]:
        x = np.where(args[1], x, x.dtype.type(_identity(kind, x.dtype)))
    return (_REDUCTIONS[kind](space.stretch(x, axis, op.args[0].shape[axis]), space.rank + axis),)


@_operation("partials")
def _partials(space: Space, op: Op, args: Arrays) -> Arrays:
    rank = space.rank + op.result.type.rank - 1
    return (np.zeros((1,) * rank + (exact.PARTIALS,), np.float32),)


@_operation("accumulate")
def _accumulate(space: Space, op: Op, args: Arrays) -> Arrays:
    axis, x = op.attrs["axis"], args[1]
    if op.attrs["masked"]:
        x = np.where(args[2], x, np.float32(0))
    x = space.stretch(x, axis, op.args[1].shape[axis])
    return (exact.accumulate(args[0], x, space.rank + axis),)


@_operation("finish")
def _finish(space: Space, op: Op, args: Arrays) -> Arrays:
    last = op.args[0].type.rank - 1
    return (exact.finish(space.stretch(args[0], last, exact.PARTIALS)),)


@_operation("dot_i8")
def _dot_i8(space: Space, op: Op, args: Arrays) -> Arrays:
    return (exact.dot_i8(*_depth(space, op, args)),)


@_operation("dot")
def _dot(space: Space, op: Op, args: Arrays) -> Arrays:
    return (exact.dot_f32(*_depth(space, op, args), args[2]),)


def _depth(space: Space, op: Op, args: Arrays) -> tuple[Array, Array]:
    depth = op.args[0].shape[1]
    return space.stretch(args[0], 1, depth), space.stretch(args[1], 0, depth)
