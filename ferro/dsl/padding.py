"""What a tile holds past the end of its coordinate, where that is a known number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ferro.dsl import ir
from ferro.dsl.bounds import Access
from ferro.dsl.definitions import Axes, source
from ferro.dsl.domains import Domains
from ferro.dsl.tiles import Coordinate
from ferro.dsl.types import DType, f32, i32

Number = float | int


class Padding:
    """Follows `other=` of masked loads and the sides of `tl.where` through exact operations."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.defined = domains.defined
        self._known: dict[tuple[ir.Value, int | None, Coordinate], Number | None] = {}

    def outside(self, value: ir.Value, axis: int | None, coordinate: Coordinate) -> Number | None:
        """The number that ``value`` is wherever ``coordinate``, along ``axis``, is past its end."""
        key = (value, axis, coordinate)
        if key not in self._known:
            self._known[key] = self._outside(*key)
        return self._known[key]

    def _outside(self, value: ir.Value, axis: int | None, coordinate: Coordinate) -> Number | None:
        op = self.defined.op.get(value)
        if op is None:
            return None
        if op.name == "const":
            return op.attrs["value"]
        shown = source(op, _one_hot(axis, value.type.rank))
        if shown is not None:
            return self.outside(shown[0], _place(shown[1]), coordinate)
        if op.name in ("load", "load_block"):
            return self._loaded(op, axis, coordinate)
        if op.name == "where":
            return self._chosen(op, axis, coordinate)
        if op.name == "cast":
            return _converted(self.outside(op.args[0], axis, coordinate), op.result.dtype)
        if op.name in _FOLDS and value.dtype in (f32, i32):
            numbers = [self.outside(a, axis, coordinate) for a in op.args]
            if None not in numbers:
                with np.errstate(all="ignore"):
                    folded = _FOLDS[op.name](*(value.dtype.numpy.type(n) for n in numbers))
                return folded.item()
        return None

    def _loaded(self, op: ir.Op, axis: int | None, coordinate: Coordinate) -> Number | None:
        mask = Access(op, (), ()).mask
        if mask is None or axis is None or axis >= mask.type.rank:
            return None
        if not self.domains.masked(mask, axis, coordinate):
            return None
        if op.name == "load_block":
            return 0
        return self.outside(op.args[-1], axis, coordinate) if op.attrs["other"] else None

    def _chosen(self, op: ir.Op, axis: int | None, coordinate: Coordinate) -> Number | None:
        cond, a, b = op.args
        if axis is None:
            return None
        if self.domains.ends(coordinate, axis, self.domains.algebra.conditions(cond, True)):
            return self.outside(b, axis, coordinate)
        if self.domains.ends(coordinate, axis, self.domains.algebra.conditions(cond, False)):
            return self.outside(a, axis, coordinate)
        return None

    def constant(self, value: ir.Value) -> Number | None:
        """The number that every element of ``value`` is, seen through views."""
        op = self.defined.op.get(value)
        while op is not None and op.name == "broadcast":
            op = self.defined.op.get(op.args[0])
        return op.attrs["value"] if op is not None and op.name == "const" else None


_FOLDS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
}


def _converted(number: Number | None, dtype: DType) -> Number | None:
    """A number after a cast that leaves its value alone."""
    if number is None or isinstance(number, bool):
        return None
    with np.errstate(all="ignore"):
        fits = dtype.is_float or math.isfinite(number)
        same = np.asarray(number).astype(dtype.numpy).item() if fits else None
    return same if same == number else None


def _one_hot(axis: int | None, rank: int) -> Axes:
    return tuple(0 if n == axis else None for n in range(rank))


def _place(axes: Axes) -> int | None:
    return axes.index(0) if 0 in axes else None
