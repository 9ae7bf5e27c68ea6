"""Ranges of numbers and how operations change them.

A ``Range`` holds every number between ``lo`` and ``hi`` that is ``lo`` plus a multiple of ``step``
(0: just ``lo``). Integers are exact Python numbers, so a range may exceed its dtype: what a value
that wraps around looks like is for ``ranges.py`` to say. Floats carry a range only where clamping
bounds them; NaN is not in it, and ``cast`` adds the 0 that NaN becomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ferro.dsl import ir
from ferro.dsl.extents import remainder, truncate
from ferro.dsl.types import DType


class Range(NamedTuple):
    lo: Any
    hi: Any
    step: int = 1

    @property
    def constant(self) -> bool:
        return bool(self.lo == self.hi)

    def within(self, other: Range) -> bool:
        return bool(other.lo <= self.lo and self.hi <= other.hi)

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi}]"


BOOL = Range(0, 1)
ANY_FLOAT = Range(-math.inf, math.inf)


def exactly(value: Any) -> Range:
    return Range(value, value, 0)


def full(dtype: DType) -> Range:
    """All that the dtype holds."""
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        return Range(int(info.min), int(info.max))
    return ANY_FLOAT if dtype.is_float else BOOL


def stepped(lo: int, hi: int, step: int) -> Range:
    """``hi`` lowered to the last number that the step reaches."""
    if step > 0:
        hi = lo + (hi - lo) // step * step
    return Range(lo, hi, 0 if lo == hi else step)


def hull(a: Range, b: Range) -> Range:
    """The smallest range that holds both."""
    if a == b:
        return a
    step = 1
    if isinstance(a.lo, int) and isinstance(b.lo, int):
        step = math.gcd(a.step, b.step, abs(a.lo - b.lo))
    return Range(min(a.lo, b.lo), max(a.hi, b.hi), step)


def _add(a: Range, b: Range) -> Range:
    return Range(a.lo + b.lo, a.hi + b.hi, math.gcd(a.step, b.step))


def _sub(a: Range, b: Range) -> Range:
    return Range(a.lo - b.hi, a.hi - b.lo, math.gcd(a.step, b.step))


def _mul(a: Range, b: Range) -> Range:
    if b.constant:
        a, b = b, a
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return Range(min(corners), max(corners), abs(a.lo) * b.step if a.constant else 1)


def _div(a: Range, b: Range) -> Range:
    if b.constant and b.lo > 0:
        exact = a.lo % b.lo == 0 and a.step % b.lo == 0
        step = a.step // b.lo if exact else int(not a.constant)
        return Range(truncate(a.lo, b.lo), truncate(a.hi, b.lo), step)
    if b.lo > 0:
        corners = [truncate(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return Range(min(corners), max(corners))
    most = max(abs(a.lo), abs(a.hi))
    return Range(-most, most)


def _mod(a: Range, b: Range) -> Range:
    most = max(abs(b.lo), abs(b.hi)) - 1
    if b.constant and b.lo > 0:
        if a.lo >= 0 and a.hi < b.lo:
            return a
        if a.lo >= 0 and a.step % b.lo == 0:
            return exactly(remainder(a.lo, b.lo))
    return Range(0 if a.lo >= 0 else max(-most, a.lo), min(most, max(a.hi, 0)))


def _min(a: Range, b: Range) -> Range:
    if a.hi <= b.lo:
        return a
    return b if b.hi <= a.lo else Range(min(a.lo, b.lo), min(a.hi, b.hi))


def _max(a: Range, b: Range) -> Range:
    if a.lo >= b.hi:
        return a
    return b if b.lo >= a.hi else Range(max(a.lo, b.lo), max(a.hi, b.hi))


def _overlap(a: Range, b: Range) -> bool:
    return bool(a.lo <= b.hi and b.lo <= a.hi)


def _and(a: Range, b: Range) -> Range:
    positive = [x.hi for x in (a, b) if x.lo >= 0]
    return Range(0, min(positive)) if positive else Range(min(a.lo, b.lo), max(a.hi, b.hi))


def _or(a: Range, b: Range) -> Range:
    if a.lo >= 0 and b.lo >= 0:
        return Range(0, (1 << max(a.hi, b.hi).bit_length()) - 1)
    bits = max(abs(x).bit_length() for x in (*a[:2], *b[:2]))
    return Range(-(1 << bits), (1 << bits) - 1)


def _shl(a: Range, b: Range) -> Range:
    return _mul(a, exactly(1 << (b.lo % 32))) if b.constant else Range(-(2**62), 2**62)


def _shr(a: Range, b: Range) -> Range:
    if b.constant:
        return Range(a.lo >> (b.lo % 32), a.hi >> (b.lo % 32))
    return Range(min(a.lo, 0), max(a.hi, 0))


def _abs(a: Range) -> Range:
    if a.lo >= 0:
        return a
    return Range(0 if a.hi >= 0 else -a.hi, max(-a.lo, a.hi))


def _neg(a: Range) -> Range:
    return Range(-a.hi, -a.lo, a.step)


def _not(a: Range) -> Range:
    return Range(-1 - a.hi, -1 - a.lo)


def _less(a: Range, b: Range) -> Range:
    return exactly(1) if a.hi < b.lo else exactly(0) if a.lo >= b.hi else BOOL


def _less_equal(a: Range, b: Range) -> Range:
    return exactly(1) if a.hi <= b.lo else exactly(0) if a.lo > b.hi else BOOL


def _equal(a: Range, b: Range) -> Range:
    if a.constant and b.constant:
        return exactly(int(a.lo == b.lo))
    return exactly(0) if not _overlap(a, b) else BOOL


def _flip(a: Range) -> Range:
    return Range(1 - a.hi, 1 - a.lo, a.step)


INTEGER: dict[str, Callable[..., Range]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "mod": _mod, "min": _min, "max": _max,
    "and": _and, "or": _or, "xor": _or, "shl": _shl, "shr": _shr, "abs": _abs, "neg": _neg,
    "not": _not,
}  # fmt: skip
COMPARISON: dict[str, Callable[[Range, Range], Range]] = {
    "lt": _less, "le": _less_equal, "eq": _equal,
    "gt": lambda a, b: _less(b, a), "ge": lambda a, b: _less_equal(b, a),
    "ne": lambda a, b: _flip(_equal(a, b)),
}  # fmt: skip
BOOLEAN: dict[str, Callable[..., Range]] = {
    "and": lambda a, b: Range(min(a.lo, b.lo), min(a.hi, b.hi)),
    "or": lambda a, b: Range(max(a.lo, b.lo), max(a.hi, b.hi)),
    "xor": lambda a, b: _flip(_equal(a, b)),
    "not": _flip,
}
# Of floats, what clamps and rounds; any other result may be anything.
FLOAT: dict[str, Callable[..., Range]] = {
    "min": lambda a, b: Range(min(a.lo, b.lo), min(a.hi, b.hi)),
    "max": lambda a, b: Range(max(a.lo, b.lo), max(a.hi, b.hi)),
    "neg": _neg,
    "abs": _abs,
    "rint": lambda a: Range(_whole(np.rint, a.lo), _whole(np.rint, a.hi)),
    "floor": lambda a: Range(_whole(np.floor, a.lo), _whole(np.floor, a.hi)),
}


def _whole(function: Callable[[float], float], x: float) -> float:
    return float(function(x))


def elementwise(op: ir.Op, arguments: list[Range]) -> Range | None:
    """The range of an elementwise operation before it wraps; None for other operations."""
    dtype = op.args[0].dtype
    if op.name in COMPARISON:
        return COMPARISON[op.name](*arguments) if dtype.is_int else BOOL
    table = INTEGER if dtype.is_int else FLOAT if dtype.is_float else BOOLEAN
    if op.name in table:
        return table[op.name](*arguments)
    return None


def cast(source: DType, target: DType, a: Range) -> Range:
    """The language's conversions: float to int saturates and NaN gives 0, integers wrap."""
    if target.is_float:
        return a if source.is_float else Range(_rounded(a.lo), _rounded(a.hi))
    limits = full(target)
    if not source.is_float:
        return a if a.within(limits) else limits
    lo, hi = (_saturate(x, limits) for x in (a.lo, a.hi))
    return Range(min(lo, 0), max(hi, 0))


def _rounded(x: int) -> float:
    return float(np.float32(x))


def _saturate(x: float, limits: Range) -> int:
    if x <= limits.lo:
        return int(limits.lo)
    return int(limits.hi) if x >= limits.hi else int(np.rint(x))
