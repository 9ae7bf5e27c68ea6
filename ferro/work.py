"""How much a launch does: arithmetic in its matrix products, and bytes that it has to move.

Follows the integers of programs (loop bounds, chunks, branches) through the IR. Padding of tiles
counts, since it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ferro.dsl import ir
from ferro.dsl.extents import remainder, truncate
from ferro.dsl.launch import Binding

DOTS = ("dot_i8", "dot")
MOST_PROGRAMS = 64

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

    def amount(op: ir.Op) -> int:
        if op.name not in dots:
            return 0
        (m, n), k = op.result.shape, op.args[0].shape[1]
        return 2 * m * n * k

    return _count(kernel, binding, amount)


def moved(kernel: ir.Kernel, binding: Binding, held: Mapping[str, int] | None = None) -> int:
    """Bytes that a launch has to move at least, as far as its text tells: of each buffer, once a
    direction, what its programs touch, and no more than there is of it: ``held`` bytes by name
    (default: the whole buffer). Masks are not looked at."""
    total = 0
    for buffer in kernel.buffers:
        whole = int(binding.buffers[buffer.name].nbytes)
        most = (held or {}).get(buffer.name, whole)
        each = whole / max(1, math.prod(binding.extents[buffer.name]))
        for names in (_READS, _WRITES):
            count = _count(kernel, binding, partial(_touched, buffer.name, names))
            total += most if count is None else min(most, round(count * each))
    return total


_READS, _WRITES = ("load", "load_block"), ("store", "store_block")


def _touched(buffer: str, names: tuple[str, ...], op: ir.Op) -> int:
    """How many elements of ``buffer`` one such operation touches."""
    if op.name not in names or op.attrs["buffer"] != buffer:
        return 0
    if op.name == "load":
        return math.prod(op.result.shape)
    if op.name == "load_block":
        return math.prod(op.results[0].shape)
    if op.name == "store_block":
        return math.prod(op.args[2].shape)
    return max(math.prod(argument.shape) for argument in op.args)


def _count(kernel: ir.Kernel, binding: Binding, amount: Callable[[ir.Op], int]) -> int | None:
    """The ``amount`` of all operations of a launch; where there are many programs, of some that
    stand for all. None where a loop's length cannot be followed."""
    programs = math.prod(binding.grid)
    if not programs or not any(map(amount, ir.walk(kernel.body))):
        return 0
    taken = range(programs) if programs <= MOST_PROGRAMS else _spread(programs)
    try:
        found = sum(_of_program(kernel, binding, amount, number) for number in taken)
    except _Unknown:
        return None
    return round(found * programs / len(taken))


def _spread(programs: int) -> list[int]:
    return [i * (programs - 1) // (MOST_PROGRAMS - 1) for i in range(MOST_PROGRAMS)]


def _of_program(
    kernel: ir.Kernel, binding: Binding, amount: Callable[[ir.Op], int], number: int
) -> int:
    place = []
    for count in binding.grid:
        place.append(number % count)
        number //= count
    return _Counter(kernel, binding, amount, place).block(kernel.body)


class _Counter:
    """Evaluates the integer scalars of the program at ``place`` of the grid; a value that is not
    known has no entry."""

    def __init__(
        self,
        kernel: ir.Kernel,
        binding: Binding,
        amount: Callable[[ir.Op], int],
        place: Sequence[int],
    ) -> None:
        self.binding, self.amount, self.place = binding, amount, place
        self.known: dict[ir.Value, Any] = {
            s.value: binding.scalars[s.name] for s in kernel.scalars if s.name in binding.scalars
        }

    def block(self, block: ir.Block) -> int:
        return sum(self.op(op) for op in block.ops)

    def op(self, op: ir.Op) -> int:
        if op.name == "for":
            return self.loop(op)
        if op.name == "walk":
            return self.walk(op)
        if op.name == "if":
            return self.branch(op)
        if op.results and not op.result.shape:
            self.scalar(op)
        return self.amount(op)

    def counts(self, op: ir.Op) -> bool:
        """Whether there is anything to count in the blocks of an operation."""
        return any(self.amount(inner) for block in op.blocks for inner in ir.walk(block))

    def scalar(self, op: ir.Op) -> None:
        values = [self.known.get(a) for a in op.args]
        found: Any = None
        if op.name == "const":
            found = op.attrs["value"]
        elif op.name == "scalar":
            found = self.binding.scalars.get(op.attrs["name"])
        elif op.name == "program_id":
            found = self.place[op.attrs["axis"]]
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
        if not self.counts(op):
            return 0
        counter, block = op.blocks[0].params[0], op.blocks[0]
        bounds = [self.integer(a) for a in op.args[:3]]
        turns = range(*bounds)
        if not _has_loops(block):
            self.known[counter] = bounds[0]
            return len(turns) * self.block(block)
        return sum(self.turn(block, {counter: i}) for i in turns)

    def walk(self, op: ir.Op) -> int:
        if not self.counts(op):
            return 0
        length, size, body = self.integer(op.args[0]), op.attrs["size"], op.blocks[0]
        start, stop = body.params
        chunks = range(0, length, size)
        return sum(self.turn(body, {start: i, stop: min(i + size, length)}) for i in chunks)

    def turn(self, block: ir.Block, values: Mapping[ir.Value, int]) -> int:
        self.known.update(values)
        return self.block(block)

    def branch(self, op: ir.Op) -> int:
        if not self.counts(op):
            return 0
        return self.block(op.blocks[0 if self.integer(op.args[0]) else 1])

    def integer(self, value: ir.Value) -> int:
        if value not in self.known:
            raise _Unknown
        return int(self.known[value])


def _has_loops(block: ir.Block) -> bool:
    return any(inner.name in ("for", "walk", "if") for inner in ir.walk(block))
