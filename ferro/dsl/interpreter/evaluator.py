"""Runs the blocks of a kernel for a box of programs in lockstep.

``active`` tells which programs are in the block at hand (None: all of the box). Programs outside of
it compute along, but never touch memory, and what they compute is dropped where the block ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ferro.dsl import exact
from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.interpreter.debugger import stop
from ferro.dsl.interpreter.errors import ExecutionError
from ferro.dsl.interpreter.memory import Memory
from ferro.dsl.interpreter.operations import ELEMENTWISE, OPERATIONS, Array, Arrays, Space
from ferro.dsl.ir import Block, Kernel, Op, Value

SOURCES = ("const", "arange")


class Step(NamedTuple):
    """An operation with the ids of its values. ``elementwise`` gives its one result at once,
    ``pure`` all of them from its operands alone; others have effects."""

    op: Op
    args: list[int]
    results: list[int]
    elementwise: Callable[..., Array] | None
    pure: Callable[[Space, Op, Arrays], Arrays] | None


class Prepared(NamedTuple):
    """A block whose operations are looked up: loops and library functions run them often.
    ``constants`` have the same value in every run."""

    constants: dict[int, Array]
    steps: list[Step]


@lru_cache(maxsize=4096)
def prepare(block: Block, rank: int) -> Prepared:
    """``block`` for grids of ``rank`` axes."""
    space = Space((0,) * rank, (1,) * rank)
    constants, steps = {}, []
    for op in block.ops:
        if op.name in SOURCES:
            (constants[op.result.id],) = OPERATIONS[op.name](space, op, ())
            continue
        args, results = [a.id for a in op.args], [r.id for r in op.results]
        steps.append(Step(op, args, results, ELEMENTWISE.get(op.name), OPERATIONS.get(op.name)))
    return Prepared(constants, steps)


class Evaluator:
    """One run of ``kernel`` over the programs of ``space``."""

    def __init__(
        self,
        kernel: Kernel,
        memory: Memory,
        scalars: Mapping[str, int | float],
        space: Space,
        breakpoints: bool = False,
    ) -> None:
        self.kernel = kernel
        self.space = space
        self.breakpoints = breakpoints
        self.active: Array | None = None
        self._scalars = scalars
        self._buffers = memory.buffers
        self._values: dict[int, Array] = {}
        self._effects: dict[str, Callable[[Op, Arrays], Arrays]] = {
            "load": lambda op, args: memory.load(space, op, args, self.active),
            "store": lambda op, args: memory.store(space, op, args, self.active),
            "load_block": lambda op, args: memory.load_block(space, op, args, self.active),
            "store_block": lambda op, args: memory.store_block(space, op, args, self.active),
            "scalar": self._scalar,
            "call": self._call,
            "breakpoint": self._breakpoint,
            "for": self._for,
            "if": self._if,
            "walk": self._walk,
        }

    def run(self) -> None:
        """Execute the kernel's body; raises ExecutionError where the kernel breaks a rule."""
        for scalar in self.kernel.scalars:
            given = self._scalars[scalar.name]
            self._values[scalar.value.id] = self.space.scalar(given, scalar.value.dtype.numpy)
        with np.errstate(all="ignore"):
            self._block(self.kernel.body, ())

    def _block(self, block: Block, params: Arrays, active: Array | None = None) -> Arrays:
        """The values a block yields; with ``active`` only those programs take part."""
        outer = self.active
        if active is not None:
            self.active = None if active.all() else active
        values = self._values
        values.update(zip((p.id for p in block.params), params, strict=True))
        prepared = prepare(block, self.space.rank)
        values.update(prepared.constants)
        for step in prepared.steps:
            given = [values[a] for a in step.args]
            if step.elementwise is not None:
                values[step.results[0]] = step.elementwise(*given)
                continue
            if step.pure is not None:
                found = step.pure(self.space, step.op, tuple(given))
            else:
                found = self._effects[step.op.name](step.op, tuple(given))
            for value, array in zip(step.results, found, strict=True):
                values[value] = array
        self.active = outer
        return tuple(values[r.id] for r in block.results)

    # --------------------------------------------------------------------- scalars and calls

    def _scalar(self, op: Op, args: Arrays) -> Arrays:
        value = self._scalars[op.attrs["name"]]
        return (self.space.scalar(value, op.result.dtype.numpy),)

    def _call(self, op: Op, args: Arrays) -> Arrays:
        function = self.kernel.functions[op.attrs["function"]]

        def apply(*pieces: Array) -> Array:
            return self._block(function.body, pieces)[0]

        return (exact.in_pieces(apply, *args),)

    def _breakpoint(self, op: Op, args: Arrays) -> Arrays:
        if self.breakpoints:
            stop(op, args, self._buffers, self.space, self._everyone())
        return ()

    # ------------------------------------------------------------------------------- control

    def _everyone(self) -> Array:
        if self.active is not None:
            return self.active
        return np.ones((1,) * self.space.rank, np.bool_)

    def _choose(self, programs: Array, new: Array, old: Array, value: Value) -> Array:
        """``new`` for some programs, ``old`` for the others."""
        return _select(programs, new, old, self.space.rank + value.type.rank)

    def _for(self, op: Op, args: Arrays) -> Arrays:
        counter, stop_at, step = (a.astype(np.int64) for a in args[:3])
        carried = args[3:]
        everyone = self._everyone()
        if (everyone & (step <= 0)).any():
            raise ExecutionError(
                Diagnostic("FER802", op.span, f"the step of a range is {int(step.min())}",
                           help="a step must be positive")
            )  # fmt: skip
        while True:
            live = everyone & (counter < stop_at)
            if not live.any():
                return carried
            params = (counter.astype(np.int32), *carried)
            new = self._block(op.blocks[0], params, live)
            merged = zip(new, carried, op.results, strict=True)
            carried = tuple(self._choose(live, n, o, v) for n, o, v in merged)
            counter = np.where(live, counter + step, counter)

    def _if(self, op: Op, args: Arrays) -> Arrays:
        everyone = self._everyone()
        yes, no = everyone & args[0], everyone & ~args[0]
        if not no.any():
            return self._block(op.blocks[0], ())
        if not yes.any():
            return self._block(op.blocks[1], ())
        then = self._block(op.blocks[0], (), yes)
        otherwise = self._block(op.blocks[1], (), no)
        merged = zip(then, otherwise, op.results, strict=True)
        return tuple(self._choose(args[0], t, o, v) for t, o, v in merged)

    def _walk(self, op: Op, args: Arrays) -> Arrays:
        length, merged = args[0].astype(np.int64), args[1:]
        size = op.attrs["size"]
        everyone = self._everyone()
        used: Array = np.zeros((1,) * self.space.rank, np.bool_)
        start = 0
        while True:
            live = everyone & (length > start)
            if not live.any():
                return merged
            stop_at = np.minimum(length, start + size).astype(np.int32)
            begin = self.space.scalar(start, np.dtype(np.int32))
            results = self._block(op.blocks[0], (begin, stop_at), live)
            counts = live
            if op.attrs["when"]:
                results, when = results[:-1], results[-1]
                counts = self.space.mask(live, op.blocks[0].results[-1].type.rank) & when
                used = used.reshape(used.shape + (1,) * (counts.ndim - used.ndim))
            merged = self._merge(op, merged, results, used, counts)
            used = used | counts
            start += size

    def _merge(self, op: Op, old: Arrays, new: Arrays, used: Array, counts: Array) -> Arrays:
        """``old`` and a chunk's ``new`` values: the first that counts is copied, later ones are
        merged by the rule, others are dropped."""
        if not counts.any():
            return old
        both = used & counts
        joined = self._block(op.blocks[1], (*old, *new)) if both.any() else old
        results = []
        for n, o, j, value in zip(new, old, joined, op.results, strict=True):
            rank = self.space.rank + value.type.rank
            results.append(_select(both, j, _select(counts & ~used, n, o, rank), rank))
        return tuple(results)


def _select(mask: Array, a: Array, b: Array, rank: int) -> Array:
    """``a`` where ``mask`` (which spans the first axes of ``rank``) holds, else ``b``."""
    if mask.all():
        return a
    if not mask.any():
        return b
    return np.where(mask.reshape(mask.shape + (1,) * (rank - mask.ndim)), a, b)
