"""Loads that every lane needs whole: read by all lanes from one address, not spread over them.

The scales of a tile's rows could lie on the lanes like any tile; if they are only ever combined
with tiles that have their columns there, each lane needs every scale, and spreading them would
mean a way back through local memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ferro.codegen.axes import Dimensions
from ferro.dsl.ir import Kernel, Op, Value, walk

_ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "fma", "min", "max", "where", "cast", "call", "bitcast"}
)


def uniform_loads(kernel: Kernel, dimensions: Dimensions) -> frozenset[Value]:
    """The results of plain loads of which no consumer has an axis on the lanes."""
    readers: dict[Value, list[Op]] = defaultdict(list)
    kept: set[Value] = set()
    ops = list(walk(kernel.body))
    for op in ops:
        for arg in op.args:
            readers[arg].append(op)
        for block in op.blocks:
            kept.update(block.results)
    found = set()
    for op in ops:
        if op.name == "load" and op.result.shape:
            spread = list(
                _spread(op.result, tuple(range(op.result.type.rank)), readers, dimensions, kept)
            )
            if spread and not any(spread):
                found.add(op.result)
    return frozenset(found)


def _spread(
    value: Value,
    axes: tuple[int, ...],
    readers: dict[Value, list[Op]],
    dimensions: Dimensions,
    kept: set[Value],
) -> Iterator[bool]:
    """For each reader behind views, whether one of ``axes`` of ``value`` is on its lanes."""
    if value in kept:
        yield True
    for op in readers[value]:
        if op.name in ("expand", "broadcast", "transpose"):
            yield from _spread(op.result, _moved(op, axes), readers, dimensions, kept)
        elif op.name in _ELEMENTWISE:
            lane = dimensions.lane_axis(op.result)
            yield lane is None or lane in axes
        else:
            yield True


def _moved(op: Op, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Where the axes of a view's source are in its result."""
    if op.name == "expand":
        return tuple(i + (i >= op.attrs["axis"]) for i in axes)
    if op.name == "transpose":
        return tuple(op.attrs["perm"].index(i) for i in axes)
    source, result = op.args[0].shape, op.result.shape
    lead = len(result) - len(source)
    return tuple(i + lead for i in axes if source[i] == result[i + lead])
