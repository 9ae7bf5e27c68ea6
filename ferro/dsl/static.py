"""Compile-time values: what they are, whether they derive from a schedule constexpr, arithmetic.

Every operation on statics takes the ``or`` of the marks of its operands, so that the schedule
check sees where a tile size may reach a value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from ferro.dsl.extents import cdiv, remainder, truncate

Constant = int | float | bool | str


@dataclass(frozen=True)
class Static:
    """A value known when a kernel is specialised."""

    value: Constant
    schedule: bool = False

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def is_int(self) -> bool:
        return isinstance(self.value, int) and not isinstance(self.value, bool)


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": truncate,
    "mod": remainder,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda a, b: a << (b % 32),
    "shr": lambda a, b: a >> (b % 32),
    "min": min,
    "max": max,
    "cdiv": cdiv,
}
_COMPARE: dict[str, Callable[[Constant, Constant], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def fold(name: str, a: Static, b: Static) -> Static | None:
    """The static result of a binary operation, or None where it is not decided here.

    Integers fold, bools fold under bit operations, anything comparable compares. Arithmetic on
    floats does not fold: it is arithmetic of f32, with the rounding of f32.
    """
    mark = a.schedule or b.schedule
    if name in _COMPARE:
        return _compare(name, a, b, mark)
    if a.is_int and b.is_int and name in _INTEGER:
        return Static(_INTEGER[name](int(a.value), int(b.value)), mark)
    if isinstance(a.value, bool) and isinstance(b.value, bool) and name in ("and", "or", "xor"):
        return Static(bool(_INTEGER[name](a.value, b.value)), mark)
    return None


def _compare(name: str, a: Static, b: Static, mark: bool) -> Static | None:
    if isinstance(a.value, str) != isinstance(b.value, str):
        return Static(name == "ne", mark) if name in ("eq", "ne") else None
    return Static(_COMPARE[name](a.value, b.value), mark)
