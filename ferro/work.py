"""How much arithmetic a launch does in its matrix products: for GOPS and GFLOPS in a bench.

Follows the integers of one program (loop bounds, chunks, branches) through the IR and multiplies
by the number of programs. Padding of tiles counts, since it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ferro.dsl import ir
from ferro.dsl.extents import remainder, truncate
from ferro.dsl.launch import Binding

DOTS = ("dot_i8", "dot")

_SCALAR: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncate,
    "mod": remainder,
    "min": min,
    "max": max,
    "neg": lambda a: -a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": lambda a: not a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "where": lambda c, a, b: a if c else b,
}


class _Unknown(Exception):
    """A loop bound that depends on more than integers."""


def operations(kernel: ir.Kernel, binding: Binding, dots: tuple[str, ...] = DOTS) -> int | None:
    """Multiplications and additions in the ``dots`` of a launch: two for each step along K.

    0 for a kernel without them; None where a loop's length cannot be followed.
    """
    counter = _Counter(kernel, binding, dots)
    try:
        return counter.block(kernel.body) * math.prod(binding.grid)
    except _Unknown:
        return None


class _Counter:
    """Evaluates the integer scalars of program 0; a value that is not known has no entry."""

    def __init__(self, kernel: ir.Kernel, binding: Binding, dots: tuple[str, ...]) -> None:
        self.binding, self.dots = binding, dots
        self.known: dict[ir.Value, Any] = {
            s.value: binding.scalars[s.name] for s in kernel.scalars if s.name in binding.scalars
        }

    def block(self, block: ir.Block) -> int:
        return sum(self.op(op) for op in block.ops)

    def op(self, op: ir.Op) -> int:
        if op.name in self.dots:
            (m, n), k = op.result.shape, op.args[0].shape[1]
            return 2 * m * n * k
        if op.name == "for":
            return self.loop(op)
        if op.name == "walk":
            return self.walk(op)
        if op.name == "if":
            return self.branch(op)
        if op.results and not op.result.shape:
            self.scalar(op)
        return 0

    def scalar(self, op: ir.Op) -> None:
        values = [self.known.get(a) for a in op.args]
        found: Any = None
        if op.name == "const":
            found = op.attrs["value"]
        elif op.name == "scalar":
            found = self.binding.scalars.get(op.attrs["name"])
        elif op.name == "program_id":
            found = 0
        elif op.name == "load" and op.result.dtype.is_int:
            found = self.element(op, values)
        elif op.name == "cast" and op.result.dtype.is_int and isinstance(values[0], int):
            found = values[0]
        elif op.name in _SCALAR and None not in values:
            found = _SCALAR[op.name](*values)
        if found is not None:
            self.known[op.result] = found

    def element(self, op: ir.Op, values: list[Any]) -> Any:
        """A scalar read of an integer array: how long a sequence is, for example."""
        array = self.binding.buffers.get(op.attrs["buffer"])
        index = tuple(values[: op.attrs["rank"]])
        if None in index or not isinstance(array, np.ndarray):
            return None
        inside = all(0 <= i < n for i, n in zip(index, array.shape, strict=True))
        return int(array[index]) if inside else None

    def loop(self, op: ir.Op) -> int:
        if not _has_dots(op):
            return 0
        counter, block = op.blocks[0].params[0], op.blocks[0]
        bounds = [self.integer(a) for a in op.args[:3]]
        turns = range(*bounds)
        if not _has_loops(block):
            self.known[counter] = bounds[0]
            return len(turns) * self.block(block)
        return sum(self.turn(block, {counter: i}) for i in turns)

    def walk(self, op: ir.Op) -> int:
        if not _has_dots(op):
            return 0
        length, size, body = self.integer(op.args[0]), op.attrs["size"], op.blocks[0]
        start, stop = body.params
        chunks = range(0, length, size)
        return sum(self.turn(body, {start: i, stop: min(i + size, length)}) for i in chunks)

    def turn(self, block: ir.Block, values: Mapping[ir.Value, int]) -> int:
        self.known.update(values)
        return self.block(block)

    def branch(self, op: ir.Op) -> int:
        if not _has_dots(op):
            return 0
        return self.block(op.blocks[0 if self.integer(op.args[0]) else 1])

    def integer(self, value: ir.Value) -> int:
        if value not in self.known:
            raise _Unknown
        return int(self.known[value])


def _has_dots(op: ir.Op) -> bool:
    return any(inner.name in DOTS for block in op.blocks for inner in ir.walk(block))


def _has_loops(block: ir.Block) -> bool:
    return any(inner.name in ("for", "walk", "if") for inner in ir.walk(block))
