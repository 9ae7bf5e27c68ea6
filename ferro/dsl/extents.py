"""Integer expressions over dimension names: evaluate, print, simplify, solve from shapes.

An ``ir.Extent`` is ``("const", 5)``, ``("name", "K")`` or ``(op, left, right)``. A constant that
derives from a schedule constexpr is ``("const", 64, "schedule")``. Arithmetic is the language's:
division truncates, and dividing by zero gives zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ferro.dsl.ir import Extent


def truncate(a: int, b: int) -> int:
    """``a / b`` rounded towards zero, 0 where ``b`` is 0."""
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def remainder(a: int, b: int) -> int:
    """What ``truncate`` leaves: has the sign of ``a``, 0 where ``b`` is 0."""
    return 0 if b == 0 else a - b * truncate(a, b)


def cdiv(a: int, b: int) -> int:
    return truncate(a + b - 1, b)


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": truncate,
    "%": remainder,
    "cdiv": cdiv,
    "min": min,
    "max": max,
}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


def const(value: int, schedule: bool = False) -> Extent:
    return ("const", value, "schedule") if schedule else ("const", value)


def name(text: str) -> Extent:
    return ("name", text)


def names(extent: Extent) -> Iterator[str]:
    """The names an extent mentions, in order of appearance, with repeats."""
    if extent[0] == "name":
        yield extent[1]
    elif extent[0] != "const":
        yield from names(extent[1])
        yield from names(extent[2])


def length(extent: Extent) -> int:
    """How many names, numbers and operators the extent is made of."""
    if extent[0] in ("const", "name"):
        return 1
    return 1 + length(extent[1]) + length(extent[2])


def from_schedule(extent: Extent) -> bool:
    """True if any constant of the extent derives from a schedule constexpr."""
    if extent[0] == "const":
        return len(extent) > 2
    return extent[0] != "name" and (from_schedule(extent[1]) or from_schedule(extent[2]))


def evaluate(extent: Extent, values: Mapping[str, int]) -> int:
    """The extent's value. Raises KeyError naming a name that has no value."""
    if extent[0] == "const":
        return int(extent[1])
    if extent[0] == "name":
        return int(values[extent[1]])
    return OPERATORS[extent[0]](evaluate(extent[1], values), evaluate(extent[2], values))


def divisors_of_zero(extent: Extent, values: Mapping[str, int]) -> Iterator[Extent]:
    """The divisors in an extent that are 0. Raises KeyError naming a name that has no value."""
    if extent[0] in ("const", "name"):
        return
    for side in extent[1:]:
        yield from divisors_of_zero(side, values)
    if extent[0] in ("//", "%", "cdiv") and evaluate(extent[2], values) == 0:
        yield extent[2]


def text(extent: Extent, outer: int = 0) -> str:
    """The extent as an author would write it, with the fewest brackets."""
    if extent[0] in ("const", "name"):
        return str(extent[1])
    op = extent[0]
    if op not in _PRECEDENCE:
        return f"{op}({text(extent[1])}, {text(extent[2])})"
    level = _PRECEDENCE[op]
    words = f"{text(extent[1], level)} {op} {text(extent[2], level + 1)}"
    return f"({words})" if level < outer else words


def substitute(extent: Extent, values: Mapping[str, int]) -> Extent:
    """The extent with the names in ``values`` replaced, simplified."""
    if extent[0] == "name":
        return const(values[extent[1]]) if extent[1] in values else extent
    if extent[0] == "const":
        return extent
    return simplify((extent[0], substitute(extent[1], values), substitute(extent[2], values)))


def simplify(extent: Extent) -> Extent:
    """Constants folded, neutral elements dropped, roundings up made ``cdiv``; keeps schedule
    marks."""
    if extent[0] in ("const", "name"):
        return extent
    op, left, right = extent[0], simplify(extent[1]), simplify(extent[2])
    if left[0] == "const" and right[0] == "const":
        marked = from_schedule(left) or from_schedule(right)
        return const(OPERATORS[op](left[1], right[1]), marked)
    if op in ("+", "-") and right == const(0):
        return left
    if op == "+" and left == const(0):
        return right
    if op in ("*", "//", "cdiv") and right == const(1):
        return left
    if op == "*" and left == const(1):
        return right
    if op in ("min", "max") and left == right:
        return left
    if op == "//" and _rounds_up(left, right):
        return ("cdiv", left[1], right)
    return (op, left, right)


def _rounds_up(dividend: Extent, divisor: Extent) -> bool:
    """True for ``a + (b - 1)`` and ``b``: the quotient is ``cdiv(a, b)``."""
    if dividend[0] != "+" or divisor[0] != "const" or dividend[2][0] != "const":
        return False
    return bool(dividend[2][1] == divisor[1] - 1)


@dataclass(frozen=True)
class Measure:
    """One axis of one array: the declared extent, the size found, and words for where it is."""

    extent: Extent
    size: int
    source: str


@dataclass(frozen=True)
class Conflict:
    """``measure`` has another size than its extent gives; ``reasons`` are the (name, value, source)
    of the names in the extent, in order."""

    measure: Measure
    expected: int
    reasons: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Solution:
    """Dimensions read off shapes. ``sources`` says where each was read; ``unsolved`` lists names
    that no bare extent defines."""

    values: dict[str, int]
    sources: dict[str, str]
    conflicts: tuple[Conflict, ...]
    unsolved: tuple[str, ...]


def solve(measures: Iterable[Measure], known: Mapping[str, tuple[int, str]]) -> Solution:
    """Dimensions from array shapes.

    ``known`` maps scalar parameters to (value, words for where it came from). An extent that is a
    bare unknown name defines it, the first one wins; every other extent is checked against it.
    """
    measures = list(measures)
    values = {n: v for n, (v, _) in known.items()}
    sources = {n: s for n, (_, s) in known.items()}
    for m in measures:
        if m.extent[0] == "name" and m.extent[1] not in values:
            values[m.extent[1]] = m.size
            sources[m.extent[1]] = m.source
    wanted = dict.fromkeys(n for m in measures for n in names(m.extent))
    conflicts = []
    for m in measures:
        used = tuple(dict.fromkeys(names(m.extent)))
        if any(n not in values for n in used):
            continue
        expected = evaluate(m.extent, values)
        if expected != m.size:
            reasons = tuple((n, values[n], sources[n]) for n in used)
            conflicts.append(Conflict(m, expected, reasons))
    unsolved = tuple(n for n in wanted if n not in values)
    return Solution(values, sources, tuple(conflicts), unsolved)
