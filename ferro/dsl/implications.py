"""Conditions that hold wherever others do: is what a load's mask asks for implied by a store's?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ferro.dsl import ir
from ferro.dsl.definitions import Axes, settle, source
from ferro.dsl.domains import Domains
from ferro.dsl.linear import Form
from ferro.dsl.types import i32

_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}


@dataclass(frozen=True)
class Condition:
    """The bool ``value`` is ``holds``; its axes lie on ``axes`` of the tile that it is about."""

    value: ir.Value
    holds: bool
    axes: Axes


@dataclass(frozen=True)
class Given:
    """What holds somewhere: conditions that are no conjunctions, and forms that are at most 0."""

    conditions: frozenset[Condition]
    forms: tuple[Form, ...]


class Implications:
    """Answers for one kernel, for every size its dimensions may have."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.defined = domains.defined
        self.algebra = domains.algebra

    def given(self, held: Sequence[tuple[ir.Value, bool]], forms: Sequence[Form] = ()) -> Given:
        """Where each of some bools is what is said of it."""
        parts = {c for value, holds in held for c in self.parts(value, holds)}
        facts = [f for value, holds in held for f in self.algebra.conditions(value, holds)]
        return Given(frozenset(parts), (*facts, *forms))

    def parts(
        self, value: ir.Value, holds: bool = True, axes: Axes | None = None
    ) -> Iterator[Condition]:
        """The conjunction that ``value`` being ``holds`` is, taken apart and seen through views."""
        value = self.defined.same(value)
        places = settle(value, tuple(range(len(value.shape))) if axes is None else axes)
        op = self.defined.op.get(value)
        shown = source(op, places) if op is not None else None
        if shown is not None:
            yield from self.parts(shown[0], holds, shown[1])
        elif op is not None and op.name == "not":
            yield from self.parts(op.args[0], not holds, places)
        elif op is not None and op.name == ("and" if holds else "or"):
            for operand in op.args:
                yield from self.parts(operand, holds, places)
        else:
            yield Condition(value, holds, places)

    def implied(self, wanted: Condition, given: Given) -> bool:
        """True if ``wanted`` holds wherever ``given`` does. False: no proof was found."""
        value, holds, axes = wanted.value, wanted.holds, wanted.axes
        held = self.domains.range_of(value)
        if wanted in given.conditions or (held.constant and bool(held.lo) == holds):
            return True
        op = self.defined.op.get(value)
        if op is None:
            return False
        if op.name == ("or" if holds else "and"):
            sides = (list(self.parts(a, holds, axes)) for a in op.args)
            return any(all(self.implied(part, given) for part in side) for side in sides)
        exact = _COMPARISONS - {"ne" if holds else "eq"}
        if op.name not in exact or op.args[0].dtype is not i32:
            return False
        wanted_forms = self.algebra.conditions(value, holds, axes)
        return all(self.algebra.proves(form, given.forms) for form in wanted_forms)
