"""How a value depends on tile sizes: the domain of the schedule check.

A value is *clean* if each of its elements is a function of coordinates that no schedule constexpr
changes. A tile's axis is fixed (its extent is no schedule constexpr; single if it is 1), uniform
(the value does not vary along it) or a ``Coordinate``: tile number times tile size plus offset, as
in ``program_id(0) * BN + arange(0, BN)``. The parts alone are no values; ``State.tiles`` holds
those that have not met yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ferro.dsl import ir
from ferro.dsl.types import Span

ANY = -1
FIXED = "fixed"
SINGLE = "single"
UNIFORM = "uniform"
ORDERED = (
    "add up in an order of its own: `for c in tl.chunks(n, SIZE)` with `tl.combine`, or"
    " `tl.partials` with `tl.accumulate`"
)
TOGETHER = (
    "use it as a coordinate only: `n = tl.block(0, N, BLOCK)`, or `k0 + tl.arange(0, BLOCK)` with"
    " `k0` from `range(start, stop, BLOCK)`"
)


@dataclass(frozen=True)
class Problem:
    """Why a value is not clean. ``sign`` is set if no more than the sign of a zero is at stake."""

    code: str
    span: Span
    message: str
    help: str
    sign: bool = False


@dataclass(frozen=True)
class Part:
    """A part of a coordinate. ``kind``: "count" (counts tiles: a program_id, a loop's counter),
    "loop" (a counter that steps by a tile), "offset" (an arange, along ``axis``) or "size" (a
    compile-time number). ``size`` is an offset's extent, or the extent that an origin fits."""

    kind: str
    value: ir.Value | None = None
    size: int = 0
    axis: int = -1


@dataclass(frozen=True)
class Coordinate:
    """Positions ``origin * factor + offset``; programs or turns cover them without gaps.

    ``origin`` counts tiles ("count") or steps by them ("loop"); ``offset`` is an arange of ``size``
    elements.
    """

    kind: str
    origin: ir.Value
    size: int
    offset: ir.Value

    @property
    def factor(self) -> int:
        return self.size if self.kind == "count" else 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coordinate) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return (self.kind, self.origin, self.size)


Axis = str | Coordinate
Tiles = tuple[tuple[Part, int], ...]


@dataclass(frozen=True)
class State:
    """``pure``: nothing besides ``tiles``, so that a product with a size is one of its parts."""

    axes: tuple[Axis, ...] = ()
    tiles: Tiles = ()
    pure: bool = False
    problem: Problem | None = None

    @property
    def clean(self) -> bool:
        return not self.tiles and self.problem is None

    @property
    def coordinates(self) -> list[Coordinate]:
        return [a for a in self.axes if isinstance(a, Coordinate)]


def broken(problem: Problem, rank: int) -> State:
    return State((UNIFORM,) * rank, problem=problem)


def fixed(extent: int) -> str:
    """The axis of an extent that does not derive from a schedule constexpr."""
    return SINGLE if extent == 1 else FIXED


def join_axes(states: Sequence[State], span: Span) -> tuple[tuple[Axis, ...], Problem | None]:
    """The axes that ``states`` agree on, and what is wrong with one or with their meeting."""
    problem = next((s.problem for s in states if s.problem is not None), None)
    rank = max((len(s.axes) for s in states), default=0)
    axes: list[Axis] = []
    for n in range(rank):
        kinds = dict.fromkeys(s.axes[n] for s in states if n < len(s.axes))
        kinds.pop(UNIFORM, None)
        if len(kinds) > 1:  # the others have one element for this schedule only
            kinds.pop(SINGLE, None)
        if len(kinds) > 1 and problem is None:
            problem = _mismatch(n, list(kinds), span)
        axes.append(next(iter(kinds), UNIFORM))
    return tuple(axes), problem


def joined(states: Sequence[State], span: Span) -> State:
    """The state of a tile whose element i is made of the elements i of all ``states``."""
    axes, problem = join_axes(states, span)
    return State(axes, problem=problem)


def _mismatch(axis: int, kinds: list[Axis], span: Span) -> Problem:
    names = " and ".join(_axis_name(k) for k in kinds)
    return Problem(
        "FER512",
        span,
        f"axis {axis} would pair {names}: which elements meet depends on the schedule",
        "put the two on different axes (`[:, None]`, `[None, :]`), or index both by one coordinate",
    )


def _axis_name(axis: Axis) -> str:
    if not isinstance(axis, Coordinate):
        return "a fixed extent"
    origin = axis.origin.name
    return f"the coordinate of `{origin}`" if origin else "a coordinate of programs"


def pending(state: State, span: Span) -> Problem:
    """What is wrong with using parts of a coordinate as a value."""
    if state.problem is not None:
        return state.problem
    names = {
        "count": "a `tl.program_id` or a counter that numbers tiles",
        "loop": "a loop counter that steps by a tile size",
        "offset": "a `tl.arange` over a tile size",
        "size": "a schedule constexpr",
    }
    found = [part.kind for part, _ in state.tiles]
    worst = next(k for k in names if k in found)
    return Problem("FER510", span, f"this value depends on {names[worst]} by itself", TOGETHER)


def settled(state: State, span: Span) -> State:
    """The state as a whole value: parts that have not met are a problem."""
    if not state.tiles:
        return replace(state, pure=False)
    return broken(pending(state, span), len(state.axes))


def scaled(state: State, factor: int) -> State:
    tiles = tuple((p, f * factor) for p, f in state.tiles) if factor else ()
    return replace(state, tiles=tiles)


def added(a: State, b: State, span: Span) -> State:
    """The state of a sum; parts that meet become a coordinate."""
    axes, problem = join_axes([a, b], span)
    factors: dict[Part, int] = {}
    for part, factor in (*a.tiles, *b.tiles):
        factors[part] = factors.get(part, 0) + factor
    tiles = tuple((p, f) for p, f in factors.items() if f or p.kind == "size")
    found = meeting(tiles) if problem is None else None
    if found is None:
        return State(axes, tiles, a.pure and b.pure, problem)
    origin, offset = found
    rest = State(axes, tuple(t for t in tiles if t[0] not in found))
    return added(rest, _coordinate(origin, offset, len(axes)), span)


def _coordinate(origin: Part, offset: Part, rank: int) -> State:
    assert origin.value is not None and offset.value is not None
    axes: list[Axis] = [UNIFORM] * rank
    axes[offset.axis] = Coordinate(origin.kind, origin.value, offset.size, offset.value)
    return State(tuple(axes))


def moved(state: State, axes: Sequence[int | None], rank: int, span: Span) -> State:
    """The state seen through a view: axis n of ``state`` becomes ``axes[n]`` of ``rank`` axes,
    None where an axis of one element is stretched."""
    result: list[Axis] = [UNIFORM] * rank
    tiles = []
    stretched = [a for a, place in zip(state.axes, axes, strict=True) if place is None]
    for axis, place in zip(state.axes, axes, strict=True):
        if place is not None:
            result[place] = axis
    for part, factor in state.tiles:
        place = axes[part.axis] if part.kind == "offset" else None
        if part.kind == "offset" and place is None:
            return broken(_stretched(span), rank)
        tiles.append((part if place is None else replace(part, axis=place), factor))
    if any(isinstance(a, Coordinate) for a in stretched):
        return broken(state.problem or _stretched(span), rank)
    return replace(state, axes=tuple(result), tiles=tuple(tiles))


def _stretched(span: Span) -> Problem:
    return Problem(
        "FER512",
        span,
        "a tile that has one element for this schedule is stretched",
        "use a fixed extent here, or index both tiles by one coordinate",
    )


def meeting(tiles: Tiles) -> tuple[Part, Part] | None:
    """An origin and an offset among ``tiles`` that make a coordinate, if there are."""
    for offset, factor in tiles:
        if offset.kind != "offset":
            continue
        for origin, scale in tiles:
            if origin.kind not in ("count", "loop") or origin.size not in (offset.size, ANY):
                continue
            if scale == factor * (offset.size if origin.kind == "count" else 1):
                return origin, offset
    return None
