"""By what each value of a kernel may vary: programs, turns of loops, elements of its tile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ferro.dsl import ir
from ferro.dsl.definitions import Axes, Definitions, source

TURN = -1
_DECIDING = {"for": 3, "walk": 1, "if": 1}


@dataclass(frozen=True)
class Variation:
    """``programs`` are axes of the grid, and TURN for the turns of a loop; ``lanes`` are axes of
    the value itself."""

    programs: frozenset[int] = frozenset()
    lanes: frozenset[int] = frozenset()

    def __or__(self, other: Variation) -> Variation:
        return Variation(self.programs | other.programs, self.lanes | other.lanes)


NONE = Variation()
_IN_A_TURN = Variation(frozenset({TURN}))


class Variations:
    """The variation of every value of ``kernel``; values in ``held`` are taken as all the same.

    What is read from a buffer that the kernel writes may differ in every program.
    """

    def __init__(
        self, kernel: ir.Kernel, defined: Definitions, held: frozenset[ir.Value] = frozenset()
    ) -> None:
        self.defined = defined
        self._held = held
        self._grid = frozenset(n for n, e in enumerate(kernel.grid) if e[:2] != ("const", 1))
        self._written = {b.name for b in kernel.buffers if b.access != "in"}
        self._known: dict[ir.Value, Variation] = {}
        self._changed = True
        while self._changed:
            self._changed = False
            self._block(kernel.body)

    def of(self, value: ir.Value) -> Variation:
        return self._known.get(value, NONE)

    def along(self, value: ir.Value, axes: Axes) -> frozenset[int]:
        """The axes of an outer tile along which ``value`` varies, where its own lie on ``axes``."""
        found = (axes[a] for a in self.of(value).lanes)
        return frozenset(a for a in found if a is not None)

    def any_of(self, values: Iterable[ir.Value]) -> Variation:
        found = NONE
        for value in values:
            found |= self.of(value)
        return found

    def _set(self, value: ir.Value, variation: Variation) -> None:
        if self.defined.same(value) in self._held:
            return
        wide = frozenset(a for a in variation.lanes if value.shape[a] > 1)
        merged = self.of(value) | Variation(variation.programs, wide)
        if merged != self.of(value):
            self._known[value] = merged
            self._changed = True

    def _block(self, block: ir.Block) -> None:
        for op in block.ops:
            if op.blocks:
                self._nested(op)
                continue
            for result in op.results:
                self._set(result, self._made(op, result))

    def _made(self, op: ir.Op, result: ir.Value) -> Variation:
        if op.name == "program_id":
            return Variation(self._grid & {op.attrs["axis"]})
        if op.name == "arange":
            return Variation(lanes=frozenset({0}))
        args = self.any_of(op.args)
        programs = args.programs
        if op.name.startswith("load") and op.attrs["buffer"] in self._written:
            programs |= self._grid | {TURN}
        return Variation(programs, self._lanes(op, result))

    def _lanes(self, op: ir.Op, result: ir.Value) -> frozenset[int]:
        if not self.any_of(op.args).lanes:
            return frozenset({result.type.rank - 1} if op.name == "load_block" else ())
        everywhere = tuple(range(result.type.rank))
        shown = source(op, everywhere)
        if shown is not None:
            return self.along(*shown)
        if op.name == "reduce":
            (x, *_), axis = op.args, op.attrs["axis"]
            return frozenset(a - (a > axis) for a in self.of(x).lanes if a != axis)
        if all(a.shape in ((), result.shape) for a in op.args):
            return self.any_of(op.args).lanes
        return frozenset(everywhere)

    def _nested(self, op: ir.Op) -> None:
        """A loop, a branch or a walk: what goes in, what its blocks give, what decides."""
        count = _DECIDING[op.name]
        control = self.any_of(op.args[:count])
        if op.name != "if":
            control |= _IN_A_TURN
            self._give(op.blocks[0].params[: 1 if op.name == "for" else 2], control)
        for block in op.blocks:
            self._block(block)
        when = NONE
        if op.name == "walk" and op.attrs["when"]:
            when = self.of(op.blocks[0].results[-1])
        for n, result in enumerate(op.results):
            outer = op.args[count + n : count + n + 1] if op.name != "if" else ()
            given = [b.results[n] for b in op.blocks if n < len(b.results)]
            merged = Variation(control.programs) | when | self.any_of([*outer, *given])
            self._set(result, merged)
            if op.name == "for":
                self._set(op.blocks[0].params[1 + n], merged)
            elif op.name == "walk":
                for param in op.blocks[1].params[n :: len(op.results)]:
                    self._set(param, merged)

    def _give(self, values: Iterable[ir.Value], variation: Variation) -> None:
        for value in values:
            self._set(value, Variation(variation.programs))
