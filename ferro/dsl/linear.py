"""Linear forms over the values of a kernel, and a small prover of inequalities between them.

A form is ``constant + sum(factor * atom)``; an atom is a value that is not itself a sum, together
with the axes of an outer tile that its own axes lie on, so that ``m[:, None]`` in a mask and in an
index is one atom and ``m[None, :]`` another. A ``Fact`` is a form that is at most 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ferro.dsl import ir
from ferro.dsl.definitions import Axes, Definitions, induction, settle, source
from ferro.dsl.intervals import Range, full
from ferro.dsl.types import i32

Atom = tuple[ir.Value, Axes]
_DEPTH = 5
_SPLITS = 4
_BUDGET = 3000


@dataclass(frozen=True)
class Form:
    """An integer expression; atoms with factor 0 are left out."""

    constant: int
    terms: frozenset[tuple[Atom, int]] = frozenset()

    def __add__(self, other: Form) -> Form:
        return self.plus(other, 1)

    def __sub__(self, other: Form) -> Form:
        return self.plus(other, -1)

    def plus(self, other: Form, factor: int) -> Form:
        factors = dict(self.terms)
        for atom, f in other.terms:
            factors[atom] = factors.get(atom, 0) + factor * f
        terms = frozenset((a, f) for a, f in factors.items() if f)
        return Form(self.constant + factor * other.constant, terms)

    def scaled(self, factor: int) -> Form:
        return Form(0).plus(self, factor)

    def shifted(self, constant: int) -> Form:
        return Form(self.constant + constant, self.terms)

    def replaced(self, atom: Atom, form: Form) -> Form:
        """The form with ``atom`` replaced by another form."""
        factor = dict(self.terms)[atom]
        rest = Form(self.constant, self.terms - {(atom, factor)})
        return rest.plus(form, factor)


def single(atom: Atom) -> Form:
    return Form(0, frozenset({(atom, 1)}))


class Algebra:
    """Forms, facts and proofs about the values of one kernel.

    ``range_of`` bounds each value; ``exact`` says of an operation's result that it did not wrap,
    so that it is the sum or product its operands say.
    """

    def __init__(
        self,
        defined: Definitions,
        range_of: Callable[[ir.Value], Range],
        exact: Callable[[ir.Value], bool],
    ) -> None:
        self.defined = defined
        self.range_of = range_of
        self.exact = exact
        self._forms: dict[Atom, Form] = {}

    # forms

    def form(self, value: ir.Value, axes: Axes | None = None) -> Form:
        """The value as a form; ``axes`` default to the value's own."""
        value = self.defined.same(value)
        key = (value, settle(value, tuple(range(len(value.shape))) if axes is None else axes))
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = self._form(*key)
        return found

    def _form(self, value: ir.Value, axes: Axes) -> Form:
        held = self.range_of(value)
        if held.constant and isinstance(held.lo, int):
            return Form(held.lo)
        op = self.defined.op.get(value)
        inner = self._carried(value, axes) if op is None else self._sum(op, value, axes)
        return inner if inner is not None else single((value, axes))

    def _carried(self, value: ir.Value, axes: Axes) -> Form | None:
        """A value that grows by the same number in every turn follows the loop's counter."""
        grown = induction(self.defined, value)
        if grown is None or not self.exact(grown.following):
            return None
        start, step = self.form(grown.loop.args[0]), self.form(grown.loop.args[2])
        if step.terms or step.constant < 1 or grown.pace % step.constant:
            return None
        passed = self.form(grown.loop.blocks[0].params[0]) - start
        return self.form(grown.initial, axes) + passed.scaled(grown.pace // step.constant)

    def _sum(self, op: ir.Op, value: ir.Value, axes: Axes) -> Form | None:
        shown = source(op, axes)
        if shown is not None:
            return self.form(*shown)
        if op.name == "cast":
            (x,) = op.args
            fits = x.dtype.is_int and self.range_of(x).within(full(value.dtype))
            return self.form(x, axes) if fits else None
        if op.name not in ("add", "sub", "mul", "neg", "shl") or not self.exact(value):
            return None
        parts = [self.form(a, axes) for a in op.args]
        if op.name == "neg":
            return parts[0].scaled(-1)
        a, b = parts
        if op.name in ("add", "sub"):
            return a + b if op.name == "add" else a - b
        if op.name == "shl":
            return a.scaled(1 << b.constant % 32) if not b.terms else None
        if not b.terms:
            return a.scaled(b.constant)
        return b.scaled(a.constant) if not a.terms else None

    # facts

    def conditions(
        self, cond: ir.Value, holds: bool = True, axes: Axes | None = None
    ) -> list[Form]:
        """Forms that are at most 0 wherever the bool tile ``cond`` is ``holds``."""
        cond = self.defined.same(cond)
        if axes is None:
            axes = settle(cond, tuple(range(len(cond.shape))))
        held = self.range_of(cond)
        if held.constant:
            return [] if bool(held.lo) == holds else [Form(1)]
        op = self.defined.op.get(cond)
        if op is None:
            return []
        shown = source(op, axes)
        if shown is not None:
            return self.conditions(shown[0], holds, shown[1])
        if op.name == "not":
            return self.conditions(op.args[0], not holds, axes)
        if op.name == ("and" if holds else "or"):
            return [f for a in op.args for f in self.conditions(a, holds, axes)]
        if op.name in _COMPARISONS and op.args[0].dtype is i32:
            return _compared(op.name, holds, *(self.form(a, axes) for a in op.args))
        return []

    def facts(self, atom: Atom) -> list[Form]:
        """What is always true of an atom, beyond its range."""
        value, axes = atom
        me = single(atom)
        parameter = self.defined.parameter.get(value)
        if parameter is not None:
            return self._parameter_facts(parameter.op, parameter.block, parameter.position, me)
        op = self.defined.op.get(value)
        if op is None or not op.args or not op.args[0].dtype.is_int:
            return []
        parts = [self.form(a, axes) for a in op.args] if op.name in _FACTUAL else []
        if op.name == "min":
            return [me - p for p in parts]
        if op.name == "max":
            return [p - me for p in parts]
        if op.name == "abs":
            return [parts[0] - me, parts[0].scaled(-1) - me]
        if op.name == "div" and not parts[1].terms and parts[1].constant > 0:
            return self._quotient_facts(parts[0], parts[1].constant, me)
        if op.name == "shr" and not parts[1].terms:
            by = 1 << parts[1].constant % 32
            return [me.scaled(by) - parts[0], parts[0] - me.scaled(by) - Form(by - 1)]
        if op.name == "mod" and self.least(parts[0]) >= 0:
            return [me - parts[0]]
        return []

    def _quotient_facts(self, x: Form, by: int, me: Form) -> list[Form]:
        if self.least(x) < 0:  # truncation: below zero it rounds up
            return [x - me.scaled(by) - Form(by - 1)]
        return [me.scaled(by) - x, x - me.scaled(by) - Form(by - 1)]

    def _parameter_facts(self, op: ir.Op, block: int, position: int, me: Form) -> list[Form]:
        if op.name == "for" and position == 0:
            start, stop = self.form(op.args[0]), self.form(op.args[1])
            return [start - me, (me - stop).shifted(1)]
        if op.name != "walk" or block != 0:
            return []
        n, (start, stop) = self.form(op.args[0]), (self.form(p) for p in op.blocks[0].params)
        if position == 0:
            return [(me - n).shifted(1), (me - stop).shifted(1)]
        return [me - n, (start - me).shifted(1), me - start - Form(op.attrs["size"])]

    # proofs

    def most(self, form: Form) -> float:
        return form.constant + sum(_upper(self.range_of(a[0]), f) for a, f in form.terms)

    def least(self, form: Form) -> float:
        return -self.most(form.scaled(-1))

    def proves(self, form: Form, facts: Iterable[Form] = ()) -> bool:
        """True if ``form`` is at most 0 wherever all ``facts`` are. False: no proof was found."""
        known = list(facts)
        if any(not f.terms and f.constant > 0 for f in known):
            return True
        return _Proof(self, known, iter(range(_BUDGET))).at_most_zero(form, _DEPTH, _SPLITS)

    def upper(self, form: Form, facts: Iterable[Form]) -> float:
        """The least bound of ``form`` that one fact or none gives: for messages."""
        return min(self.most(f) for f in (form, *self.eliminations(form, facts)))

    def eliminations(self, form: Form, facts: Iterable[Form]) -> list[Form]:
        """Upper bounds of ``form`` that one of ``facts`` gives."""
        return [f for fact in facts for f in _eliminations(form, fact)]


_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_FACTUAL = {"min", "max", "abs", "div", "mod", "shr"}


def _compared(name: str, holds: bool, a: Form, b: Form) -> list[Form]:
    name = name if holds else _OPPOSITE[name]
    less, more = a - b, b - a
    return {
        "lt": [less.shifted(1)],
        "le": [less],
        "gt": [more.shifted(1)],
        "ge": [more],
        "eq": [less, more],
        "ne": [],
    }[name]


def _upper(held: Range, factor: int) -> float:
    return float("inf") if held.hi != held.hi else factor * (held.hi if factor > 0 else held.lo)


def _eliminations(form: Form, fact: Form) -> Iterator[Form]:
    """``form`` with one atom cancelled by adding a multiple of ``-fact``: an upper bound of it."""
    factors = dict(fact.terms)
    seen = set()
    for atom, factor in form.terms:
        other = factors.get(atom, 0)
        if other and (factor > 0) == (other > 0) and factor % other == 0:
            times = factor // other
            if times not in seen:
                seen.add(times)
                yield form.plus(fact, -times)


class _Proof:
    """One search for a proof: facts are added to the goal until its range is at most 0.

    ``goals`` ends when the search has looked at as many goals as it may.
    """

    def __init__(self, algebra: Algebra, facts: list[Form], goals: Iterator[int]) -> None:
        self.algebra = algebra
        self.facts = facts
        self.goals = goals
        self.failed: dict[Form, int] = {}

    def at_most_zero(self, goal: Form, depth: int, splits: int) -> bool:
        if self.algebra.most(goal) <= 0:
            return True
        if depth == 0 or self.failed.get(goal, -1) >= depth or next(self.goals, None) is None:
            return False
        self.failed[goal] = depth
        for smaller in self._steps(goal):
            if self.at_most_zero(smaller, depth - 1, splits):
                return True
        return splits > 0 and self._by_cases(goal, depth, splits - 1)

    def _steps(self, goal: Form) -> Iterator[Form]:
        for fact in self.facts:
            yield from _eliminations(goal, fact)
        for atom, factor in goal.terms:
            for fact in self.algebra.facts(atom):
                yield from _eliminations(goal, fact)
                yield from self._scaled(goal, atom, factor, fact)

    def _scaled(self, goal: Form, atom: Atom, factor: int, fact: Form) -> Iterator[Form]:
        """A fact about ``by * atom`` for a goal with one ``atom``: the goal times ``by`` may be
        up to ``by - 1`` and still be at most 0 in integers."""
        by = abs(dict(fact.terms).get(atom, 0))
        if by > 1 and abs(factor) == 1:
            yield from _eliminations(goal.scaled(by).shifted(1 - by), fact)

    def _by_cases(self, goal: Form, depth: int, splits: int) -> bool:
        """A choice between two values, taken apart: both must do."""
        for atom, factor in goal.terms:
            cases = self._cases(atom, factor)
            if cases and all(
                _Proof(self.algebra, self.facts + given, self.goals).at_most_zero(
                    goal.replaced(atom, form), depth, splits
                )
                for form, given in cases
            ):
                return True
        return False

    def _cases(self, atom: Atom, factor: int) -> list[tuple[Form, list[Form]]]:
        value, axes = atom
        op = self.algebra.defined.op.get(value)
        if op is None:
            return []
        form = self.algebra.form
        if op.name == "where":
            cond, a, b = op.args
            yes = self.algebra.conditions(cond, True, settle(cond, axes))
            no = self.algebra.conditions(cond, False, settle(cond, axes))
            return [(form(a, axes), yes), (form(b, axes), no)]
        if (op.name, factor > 0) in (("max", True), ("min", False)):
            return [(form(a, axes), []) for a in op.args]
        if op.name == "abs" and factor > 0:
            x = form(op.args[0], axes)
            return [(x, []), (x.scaled(-1), [])]
        return []
