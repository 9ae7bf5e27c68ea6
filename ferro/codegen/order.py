"""In which order the programs of a grid run: as they are numbered, or a group of rows at a time.

Numbered order walks the whole first axis before the second one moves, so what programs of one row
share (a tile of activations) stays in a cache and what programs of one column share (a tile of
weights) is read again for every row. In groups, as in Triton's grouped order, ``group`` programs
of the second axis share a tile of weights before the first axis moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferro.codegen.errors import ConfigError
from ferro.codegen.expand import unmarked
from ferro.dsl.ir import Extent, Kernel

ONE: Extent = ("const", 1)


@dataclass(frozen=True)
class Order:
    """``groups`` are the work-groups of a launch on its three axes, ``ids`` the C expressions of
    ``tl.program_id`` by axis; a work-group whose id on the axis of ``guard`` is not below its
    extent has no program."""

    groups: tuple[Extent, Extent, Extent]
    ids: tuple[str, ...] = ("get_group_id(0)", "get_group_id(1)", "get_group_id(2)")
    guard: tuple[int, Extent] | None = None


def order(kernel: Kernel, group: int) -> Order:
    """The order of ``kernel``'s programs. Raises ConfigError for a group that cannot be."""
    grid = [unmarked(extent) for extent in kernel.grid]
    if not group:
        x, y, z = [*grid, ONE, ONE, ONE][:3]
        return Order((x, y, z))
    if group < 0:
        raise ConfigError(f"group={group}: expected a number of programs, or 0")
    if len(grid) != 2:
        raise ConfigError(
            f"group={group}: `{kernel.name}` has programs on {len(grid)} axes; groups need two"
        )
    columns, rows = grid
    size: Extent = ("const", group)
    return Order(
        groups=(("min", rows, size), columns, ("cdiv", rows, size)),
        ids=("get_group_id(1)", f"get_group_id(2) * {group} + get_group_id(0)"),
        guard=(1, rows),
    )
