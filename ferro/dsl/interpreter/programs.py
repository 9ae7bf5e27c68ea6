"""Which programs run together: the grid is cut into boxes whose values fit in a budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from ferro.dsl.interpreter.operations import Space
from ferro.dsl.ir import Block, Kernel, Op

Axes = frozenset[int]

ORDERS = ("together", "one_by_one")
_BUDGET = 1 << 22  # elements of the largest value of a box


def spaces(
    kernel: Kernel, grid: tuple[int, ...], order: str = "together", seed: int | None = None
) -> Iterator[Space]:
    """Boxes that cover ``grid``, ascending, or shuffled by ``seed``.

    "together" makes them as large as the memory budget allows, "one_by_one" one program each.
    Raises ValueError for an unknown order.
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}, not one of {', '.join(ORDERS)}")
    if math.prod(grid) == 0:
        return
    whole = grid or (1,)
    step = (1,) * len(whole) if order == "one_by_one" else _box(footprint(kernel), whole)
    corners = list(itertools.product(*(range(0, n, s) for n, s in zip(whole, step, strict=True))))
    if seed is not None:
        np.random.default_rng(seed).shuffle(corners)
    for corner in corners:
        start = tuple(int(c) for c in corner)
        rest = zip(start, step, whole, strict=True)
        yield Space(start, tuple(min(s, n - c) for c, s, n in rest))


def footprint(kernel: Kernel) -> set[tuple[Axes, int]]:
    """For every value that depends on programs: the grid axes it depends on and its tile size."""
    depends: dict[int, Axes] = {}
    _spread(kernel.body, depends)
    sizes: dict[Axes, int] = {}
    for op in _all(kernel.body):
        for value in op.results:
            axes = depends[value.id]
            sizes[axes] = max(sizes.get(axes, 0), value.type.size)
    return {(axes, size) for axes, size in sizes.items() if axes}


def _box(values: set[tuple[Axes, int]], grid: tuple[int, ...]) -> tuple[int, ...]:
    box = list(grid)
    while True:
        weights = {
            axes: size * math.prod(box[a] for a in axes if a < len(box)) for axes, size in values
        }
        heavy = max(weights, key=lambda axes: weights[axes], default=frozenset())
        widest = max((a for a in heavy if a < len(box)), key=lambda a: box[a], default=None)
        if widest is None or weights[heavy] <= _BUDGET or box[widest] == 1:
            return tuple(box)
        box[widest] = -(-box[widest] // 2)


def _spread(block: Block, depends: dict[int, Axes], outer: Axes = frozenset()) -> None:
    """Note the grid axes every value of ``block`` depends on; ``outer`` are those that decide
    whether the block runs."""
    for op in block.ops:
        axes = frozenset().union(*(depends[a.id] for a in op.args))
        if op.name == "program_id":
            axes |= {op.attrs["axis"]}
        if op.blocks:
            axes = _spread_blocks(op, axes, depends, outer)
        depends.update((r.id, axes) for r in op.results)


def _spread_blocks(op: Op, axes: Axes, depends: dict[int, Axes], outer: Axes) -> Axes:
    """Loops and branches: everything they carry or yield depends on all that goes in."""
    while True:
        for block in op.blocks:
            depends.update((p.id, axes | outer) for p in block.params)
            _spread(block, depends, axes | outer)
        results = (depends[r.id] for block in op.blocks for r in block.results)
        wider = axes.union(*results)
        if wider == axes:
            return axes
        axes = wider


def _all(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from _all(inner)
