"""Which integers are data that may be anything: sums of them may wrap around."""

from __future__ import annotations

from ferro.dsl import ir
from ferro.dsl.definitions import Definitions, induction
from ferro.dsl.types import boolean, i32


class Unbounded:
    """Follows data from loads; a minimum or a maximum with something else bounds it on one side."""

    def __init__(self, defined: Definitions) -> None:
        self.defined = defined
        self._known: dict[ir.Value, tuple[bool, bool]] = {}

    def either(self, value: ir.Value) -> bool:
        """True if data leaves ``value`` without a lower or without an upper bound."""
        return any(self._sides(value))

    def _sides(self, value: ir.Value) -> tuple[bool, bool]:
        value = self.defined.same(value)
        if value not in self._known:
            self._known[value] = (True, True)  # meanwhile, for a value that depends on itself
            self._known[value] = self._by_origin(value)
        return self._known[value]

    def _by_origin(self, value: ir.Value) -> tuple[bool, bool]:
        parameter = self.defined.parameter.get(value)
        if parameter is not None:
            growth = induction(self.defined, value)
            if growth is not None:
                return self._sides(growth.initial)
            counts = parameter.position == 0 if parameter.op.name == "for" else parameter.block == 0
            return (not counts,) * 2
        op = self.defined.op.get(value)
        if op is None or (not op.args and op.name != "load"):
            return (False, False)
        if op.blocks or op.name in ("load", "bitcast"):
            return (True, True)
        if op.name == "cast" and op.args[0].dtype is not i32:
            return (op.args[0].dtype.size >= 4,) * 2
        sides = [self._sides(a) for a in op.args if a.dtype is not boolean]
        lows, highs = [s[0] for s in sides], [s[1] for s in sides]
        if op.name == "min":
            return any(lows), all(highs)
        if op.name == "max":
            return all(lows), any(highs)
        return (any(lows) or any(highs),) * 2
