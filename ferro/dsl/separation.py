"""Proofs that what a kernel stores at one time goes to elements of its own.

Two executions of a store that meet in one element have equal indices. From these equations it is
derived which atoms are equal: the one whose factor is larger than all that the others can add up
to (as the digits of a number), then the next. Lanes of one store are apart if every axis is derived
so from what varies by lane, programs from what varies at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ferro.dsl import ir
from ferro.dsl.bounds import Access, accesses
from ferro.dsl.domains import Domains
from ferro.dsl.linear import Atom, Form
from ferro.dsl.variation import TURN, Variation, Variations

_HALVES = {"div": "mod", "mod": "div"}


@dataclass(frozen=True)
class Written:
    """A store: the forms of its indices, the conditions it runs under, and by what its indices
    (``index``), its value and all of it together with mask and control vary."""

    access: Access
    forms: tuple[Form, ...]
    conditions: tuple[Form, ...]
    index: Variation
    value: Variation
    whole: Variation

    @property
    def op(self) -> ir.Op:
        return self.access.op

    @property
    def buffer(self) -> str:
        return str(self.op.attrs["buffer"])

    @property
    def equations(self) -> list[Form]:
        """What the conditions say is 0."""
        return [f for f in self.conditions if f.scaled(-1) in self.conditions]


class Separation:
    """The stores of a kernel, and which of their axes are proved apart."""

    def __init__(self, kernel: ir.Kernel, domains: Domains) -> None:
        self.kernel = kernel
        self.domains = domains
        self.defined = domains.defined
        self.algebra = domains.algebra
        self.varies = Variations(kernel, self.defined)
        self.owner = {b: op for op in ir.walk(kernel.body) for b in op.blocks}
        self.stores = [
            self._written(a) for a in accesses(kernel.body) if a.op.name.startswith("store")
        ]

    def _written(self, access: Access) -> Written:
        forms = tuple(self.algebra.form(i) for i in access.indices)
        given = [*access.conditions]
        if access.mask is not None:
            given.append((access.mask, True))
        facts = [f for value, holds in given for f in self.algebra.conditions(value, holds)]
        index = self.varies.any_of(access.indices)
        value = self.varies.any_of(self.stored(access))
        around = self.varies.any_of([*self.control(access), *access.op.args])
        return Written(access, forms, tuple(facts), index, value, index | value | around)

    @staticmethod
    def stored(access: Access) -> tuple[ir.Value, ...]:
        """The values that a store writes; the values of a block vary as its scale does."""
        start = access.op.attrs.get("rank", 3)
        return access.op.args[start : start + 1]

    def control(self, access: Access) -> list[ir.Value]:
        """What decides whether and how often the store runs."""
        around = [self.owner[b] for b in access.blocks if b in self.owner]
        count = {"for": 3, "walk": 1, "if": 1}
        return [v for op in around for v in op.args[: count[op.name]]]

    # programs and lanes

    def programs(self, store: Written) -> frozenset[int]:
        """The axes of the grid along which two programs may store to one element."""
        if not (store.value.programs or store.value.lanes):
            return frozenset()  # one number, whoever writes it
        return self.together(store, store)

    def together(self, a: Written, b: Written) -> frozenset[int]:
        """The same for one program at ``a`` and the other at ``b``."""
        wanted = (a.whole.programs | b.whole.programs) - {TURN}
        equal = [x for x, y in zip(a.forms, b.forms, strict=True) if x == y]
        if a is b:
            equal += a.equations
        known = self._equal(equal, lambda v: not self.varies.of(v).programs and self._flat(v))
        return wanted - {self._program(value) for value, _ in known}

    def _flat(self, value: ir.Value) -> bool:
        return not self.varies.of(value).lanes

    def lanes(self, store: Written) -> frozenset[int]:
        """The axes of the store along which two of its lanes may meet."""
        if not store.value.lanes:
            return frozenset()
        wanted = store.value.lanes | store.index.lanes
        known = self._equal([*store.forms, *store.equations], self._flat)
        return wanted - {axes[0] for value, axes in known if self._is("arange", value)}

    def _is(self, name: str, value: ir.Value) -> bool:
        op = self.defined.op.get(value)
        return op is not None and op.name == name

    def _program(self, value: ir.Value) -> int | None:
        return self.defined.op[value].attrs["axis"] if self._is("program_id", value) else None

    def rewritten(self, a: Written, b: Written) -> bool:
        """True if one lane may write an element at ``a`` and another lane of the program later at
        ``b``, or at ``a`` in a later turn."""
        wanted = a.index.lanes | a.value.lanes | b.index.lanes | b.value.lanes
        if a is not b:
            return bool(wanted)  # the lanes of two stores may lie on two axes
        if TURN not in self.varies.any_of(a.access.op.args).programs:
            return False
        known = self._equal(
            list(a.forms), lambda v: self._flat(v) and TURN not in self.varies.of(v).programs
        )
        return bool(wanted - {axes[0] for value, axes in known if self._is("arange", value)})

    # equations

    def _equal(self, equations: list[Form], steady: Callable[[ir.Value], bool]) -> set[Atom]:
        """The atoms that are equal wherever ``equations`` are; ``steady`` ones always are."""
        known: set[Atom] = set()
        halves: set[Form] = set()
        while True:
            before = len(known)
            for form in [*equations, *halves]:
                self._digits(form, known, steady)
            halves |= set(self._joined(known, steady))
            if len(known) == before:
                return known

    def _digits(self, form: Form, known: set[Atom], steady: Callable[[ir.Value], bool]) -> None:
        terms = [t for t in form.terms if t[0] not in known and not steady(t[0][0])]
        terms.sort(key=lambda t: -abs(t[1]) * self._step(t[0]))
        for n, (atom, factor) in enumerate(terms):
            rest = sum(abs(f) * self._width(a) for a, f in terms[n + 1 :])
            if abs(factor) * self._step(atom) <= rest:
                return
            known.add(atom)

    def _width(self, atom: Atom) -> int:
        held = self.domains.range_of(atom[0])
        return int(held.hi - held.lo)

    def _step(self, atom: Atom) -> int:
        """What two values of an atom differ by at least: a counter steps by tiles."""
        return max(1, int(self.domains.range_of(atom[0]).step))

    def _joined(self, known: set[Atom], steady: Callable[[ir.Value], bool]) -> list[Form]:
        """A number is equal where its quotient and its remainder are."""
        parts: dict[tuple[object, ...], set[str]] = {}
        found = []
        for value, axes in known:
            op = self.defined.op.get(value)
            if op is None or op.name not in _HALVES or not self._divides(op, steady):
                continue
            x, divisor = (self.defined.same(a) for a in op.args)
            have = parts.setdefault((x, self.algebra.form(divisor), axes), set())
            have.add(op.name)
            if len(have) == 2:
                found.append(self.algebra.form(x, axes))
        return found

    def _divides(self, op: ir.Op, steady: Callable[[ir.Value], bool]) -> bool:
        """True if the divisor is one number, so that quotient and remainder belong together."""
        return all(steady(a) for (a, _), _ in self.algebra.form(op.args[1]).terms)
