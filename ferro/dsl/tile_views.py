"""How tiles' states pass through operations that rearrange elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ferro.dsl import ir
from ferro.dsl.tiles import (
    UNIFORM,
    Axis,
    Coordinate,
    Part,
    Problem,
    State,
    broken,
    fixed,
    join_axes,
    moved,
)


def broadcast(op: ir.Op, state: State) -> State:
    (x,) = op.args
    rank, shape = op.result.type.rank, op.result.shape
    offset = rank - x.type.rank
    places = [n + offset if x.shape[n] == shape[n + offset] else None for n in range(x.type.rank)]
    result = moved(state, places, rank, op.span)
    written = op.attrs.get("schedule_axes")
    if written is None:
        return result
    known = set(range(rank)) - {p for p in places if p is not None} - set(written)
    axes = tuple(fixed(shape[n]) if n in known else a for n, a in enumerate(result.axes))
    return replace(result, axes=axes)


def expand(op: ir.Op, state: State) -> State:
    rank = op.result.type.rank
    return moved(state, [n for n in range(rank) if n != op.attrs["axis"]], rank, op.span)


def transpose(op: ir.Op, state: State) -> State:
    perm = op.attrs["perm"]
    return moved(state, [perm.index(n) for n in range(len(perm))], len(perm), op.span)


def reshape(op: ir.Op, state: State) -> State:
    """Axes that a reshape keeps keep their kind; a coordinate must be kept."""
    places = _kept_axes(op.args[0].shape, op.result.shape)
    lost = [n for n, place in enumerate(places) if place is None]
    parts = any(p.kind == "offset" and p.axis in lost for p, _ in state.tiles)
    if parts or any(isinstance(state.axes[n], Coordinate) for n in lost):
        return broken(state.problem or _apart(op, "a reshape"), op.result.type.rank)
    axes: list[Axis] = [fixed(n) for n in op.result.shape]
    for n in op.attrs.get("schedule_axes", ()):
        axes[n] = UNIFORM
    for n, place in enumerate(places):
        if place is not None:
            axes[place] = state.axes[n]
    tiles = tuple((_placed(part, places), factor) for part, factor in state.tiles)
    return replace(state, axes=tuple(axes), tiles=tiles)


def _placed(part: Part, places: Sequence[int | None]) -> Part:
    place = places[part.axis] if part.kind == "offset" else None
    return part if place is None else replace(part, axis=place)


def halved(op: ir.Op, states: Sequence[State]) -> State:
    """The result of a split or a join, along an axis that is no coordinate."""
    axes, problem = join_axes(states, op.span)
    if problem is None and isinstance(axes[op.attrs["axis"]], Coordinate):
        problem = _apart(op, f"`tl.{op.name}`")
    return State(axes, problem=problem)


def _apart(op: ir.Op, what: str) -> Problem:
    return Problem(
        "FER512",
        op.span,
        f"{what} takes a tile's coordinate apart",
        "give that axis a fixed extent and take more tiles, or load the parts by index",
    )


def _kept_axes(old: Sequence[int], new: Sequence[int]) -> list[int | None]:
    """Where each old axis is after a row-major reshape, None for those cut up or fused."""
    places: list[int | None] = [None] * len(old)
    before = after = 1
    i = j = 0
    while i < len(old) and j < len(new):
        if before == after and old[i] == new[j]:
            places[i] = j
            before, after, i, j = before * old[i], after * new[j], i + 1, j + 1
        elif before * old[i] <= after * new[j]:
            before, i = before * old[i], i + 1
        else:
            after, j = after * new[j], j + 1
    return places


VIEWS: dict[str, Callable[[ir.Op, State], State]] = {
    "broadcast": broadcast,
    "expand": expand,
    "transpose": transpose,
    "reshape": reshape,
}
