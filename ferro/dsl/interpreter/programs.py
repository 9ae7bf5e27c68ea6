"""Which programs run together: the grid is cut into boxes whose values fit in a budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ferro.dsl.interpreter.operations import Space
from ferro.dsl.ir import Block, Kernel, Op, walk

Axes = frozenset[int]
NONE: Axes = frozenset()

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


@lru_cache(maxsize=256)
def footprint(kernel: Kernel) -> dict[Axes, int]:
    """The largest tile among the values that depend on the same grid axes, for each such set."""
    depends: dict[int, Axes] = {}
    _spread(kernel.body, depends)
    sizes: dict[Axes, int] = {}
    for op in walk(kernel.body):
        for value in op.results:
            axes = depends[value.id]
            sizes[axes] = max(sizes.get(axes, 0), value.type.size)
    return {axes: size for axes, size in sizes.items() if axes}


def _box(sizes: dict[Axes, int], grid: tuple[int, ...]) -> tuple[int, ...]:
    box = list(grid)
    while True:
        weights = {axes: size * math.prod(box[a] for a in axes) for axes, size in sizes.items()}
        heavy = max(weights, key=lambda axes: weights[axes], default=NONE)
        widest = max(heavy, key=lambda axis: box[axis], default=0)
        if not heavy or weights[heavy] <= _BUDGET or box[widest] == 1:
            return tuple(box)
        box[widest] = -(-box[widest] // 2)


def _spread(block: Block, depends: dict[int, Axes]) -> None:
    """Note the grid axes that every value of ``block`` depends on."""
    for op in block.ops:
        axes = [depends.get(a.id, NONE) for a in op.args]
        if op.blocks:
            results = _spread_blocks(op, axes, depends)
        else:
            own = {op.attrs["axis"]} if op.name == "program_id" else ()
            results = [NONE.union(own, *axes)] * len(op.results)
        depends.update((r.id, a) for r, a in zip(op.results, results, strict=True))


def _spread_blocks(op: Op, axes: list[Axes], depends: dict[int, Axes]) -> list[Axes]:
    """Results of a loop, branch or walk: what goes in, what the blocks yield, what decides."""
    deciding = 3 if op.name == "for" else 1
    control = NONE.union(*axes[:deciding])
    results = [control | a for a in axes[deciding:]] or [control] * len(op.results)
    while True:
        before = results
        for block, params in zip(op.blocks, _params(op, control, results), strict=True):
            depends.update((p.id, a) for p, a in zip(block.params, params, strict=True))
            _spread(block, depends)
            yielded = [depends.get(r.id, NONE) for r in block.results]
            when = NONE.union(*yielded[len(results) :])
            results = [a | b | when for a, b in zip(results, yielded, strict=False)]
        if results == before:
            return results


def _params(op: Op, control: Axes, results: list[Axes]) -> tuple[list[Axes], ...]:
    if op.name == "for":
        return ([control, *results],)
    return ([], []) if op.name == "if" else ([control, control], [*results, *results])
