"""Stores of several lanes or programs to one element: which values stay would be left open.

A store whose lanes and programs are proved apart is fine (``separation.py``), one that cannot but
collide is refused here, and between the two lies what depends on data or sizes: the interpreter
watches the buffers that ``watched`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement
from weakref import WeakKeyDictionary

from ferro.dsl import extents, ir
from ferro.dsl.definitions import Axes, definitions, settle, source
from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.domains import Domains
from ferro.dsl.linear import Atom, Form
from ferro.dsl.printer import expression
from ferro.dsl.separation import Separation, Written
from ferro.dsl.types import i32
from ferro.dsl.variation import Variations

_LARGEST_DIVISOR = 1024
_ORDERED = {"lt", "le", "gt", "ge"}


def check(kernel: ir.Kernel, domains: Domains) -> list[Diagnostic]:
    """Every store that writes different values to one element, as errors."""
    search = Separation(kernel, domains)
    found = (_Search(search, store).finding() for store in search.stores)
    return [d for d in found if d is not None]


_watched: WeakKeyDictionary[ir.Kernel, frozenset[str]] = WeakKeyDictionary()


def watched(kernel: ir.Kernel) -> frozenset[str]:
    """The buffers in which two lanes or programs may meet in one element."""
    if kernel not in _watched:
        _watched[kernel] = frozenset(_undecided(kernel))
    return _watched[kernel]


def rewritten(kernel: ir.Kernel) -> frozenset[str]:
    """The buffers in which a lane may write what another lane of its program wrote before."""
    search = Separation(kernel, Domains(kernel, definitions(kernel)))
    pairs = combinations_with_replacement(search.stores, 2)
    return frozenset(a.buffer for a, b in pairs if a.buffer == b.buffer and search.rewritten(a, b))


def _undecided(kernel: ir.Kernel) -> Iterator[str]:
    search = Separation(kernel, Domains(kernel, definitions(kernel)))
    for store in search.stores:
        if search.lanes(store) or search.programs(store):
            yield store.buffer
    for a, b in combinations(search.stores, 2):
        if a.buffer == b.buffer and search.together(a, b):
            yield a.buffer


class _Search:
    """A search for two lanes or programs that meet in one store, whatever the sizes."""

    def __init__(self, search: Separation, store: Written) -> None:
        self.search = search
        self.store = store
        self.defined = search.defined
        self.algebra = search.algebra
        self.varies = search.varies

    def finding(self) -> Diagnostic | None:
        for axis in sorted(self.search.lanes(self.store)):
            if self._collides(axis, lanes=True):
                return self._diagnostic(f"lanes along axis {axis} of this store")
        for axis in sorted(self.search.programs(self.store)):
            if self._collides(axis, lanes=False):
                count = extents.text(self.search.kernel.grid[axis])
                return self._diagnostic(f"the {count} programs along axis {axis}")
        return None

    def _collides(self, axis: int, lanes: bool) -> bool:
        if not self._reaches_all(axis, lanes):
            return False
        atoms = [t[0] for f in self.store.forms for t in f.terms if self._on(t[0], axis, lanes)]
        if not atoms:
            return not self._in(self.store.index, axis, lanes) and self._told(axis, lanes, ())
        if len(atoms) > 1:
            return False
        if self._told(axis, lanes, (atoms[0][0],)) and self._folds(atoms[0], axis, lanes):
            return True
        return not lanes and self._overlaps(atoms[0], axis)

    # what varies along an axis

    def _in(self, variation: object, axis: int, lanes: bool) -> bool:
        return axis in getattr(variation, "lanes" if lanes else "programs")

    def _on(self, atom: Atom, axis: int, lanes: bool) -> bool:
        if lanes:
            return axis in self.varies.along(*atom)
        return axis in self.varies.of(atom[0]).programs

    def _told(self, axis: int, lanes: bool, held: tuple[ir.Value, ...]) -> bool:
        """True if the value differs along the axis though all of ``held`` are equal."""
        kernel, same = self.search.kernel, frozenset(map(self.defined.same, held))
        if any(self._digit(v) for v in held):
            same = frozenset()
        varies = Variations(kernel, self.defined, same)
        return self._in(varies.any_of(self.search.stored(self.store.access)), axis, lanes)

    def _digit(self, value: ir.Value) -> bool:
        op = self.defined.op.get(value)
        return op is not None and op.name in ("program_id", "arange")

    # masks

    def _reaches_all(self, axis: int, lanes: bool) -> bool:
        """True if mask and control flow cut off no more than a tail of the axis."""
        control = self.varies.any_of(self.search.control(self.store.access))
        if not lanes and axis in control.programs:
            return False
        mask = self.store.access.mask
        if mask is None:
            return True
        axes = settle(mask, tuple(range(mask.type.rank)))
        return all(self._tail(c, a, axis, lanes) for c, a in self._conjuncts(mask, axes))

    def _conjuncts(self, mask: ir.Value, axes: Axes) -> Iterator[tuple[ir.Value, Axes]]:
        mask = self.defined.same(mask)
        op = self.defined.op.get(mask)
        shown = source(op, axes) if op is not None else None
        if shown is not None:
            yield from self._conjuncts(*shown)
        elif op is not None and op.name == "and":
            for a in op.args:
                yield from self._conjuncts(a, settle(a, axes))
        else:
            yield mask, axes

    def _tail(self, cond: ir.Value, axes: Axes, axis: int, lanes: bool) -> bool:
        """True for a condition that has nothing to do with the axis, or ends it at a size."""
        if not self._on((cond, axes), axis, lanes):
            return True
        op = self.defined.op.get(cond)
        if op is None or op.name not in _ORDERED or op.args[0].dtype is not i32:
            return False
        return all(
            self._ends(form, axis, lanes) for form in self.algebra.conditions(cond, True, axes)
        )

    def _ends(self, form: Form, axis: int, lanes: bool) -> bool:
        mine = [t for t in form.terms if self._on(t[0], axis, lanes)]
        if not all(self._digit(a[0]) for a, _ in mine):
            return False
        rest = [t for t in form.terms if t not in mine]
        if all(f > 0 for _, f in mine):
            return any(f < 0 for _, f in rest)
        return all(f < 0 for _, f in form.terms) and form.constant <= 0

    # maps that are not one to one

    def _folds(self, atom: Atom, axis: int, lanes: bool) -> bool:
        """True for `n % d`, `n // d`, `n & d`, `n >> d` that is one number for two of the axis."""
        op = self.defined.op.get(atom[0])
        if op is None or op.name not in ("div", "mod", "and", "shr"):
            return False
        x, by = self.algebra.form(op.args[0], atom[1]), self.algebra.form(op.args[1], atom[1])
        digits = [t for t in x.terms if self._on(t[0], axis, lanes)]
        if len(digits) != 1 or not self._digit(digits[0][0][0]):
            return False
        plain = all(self._digit(a[0]) for a, _ in x.terms)
        factor, held = digits[0][1], self.search.domains.range_of(digits[0][0][0])
        if by.terms:
            bounds = {a[0] for f in self.store.conditions for a, _ in f.terms}
            known = {*bounds, *self._sizes(axis, lanes)}
            return op.name == "mod" and plain and not lanes and by_size(by, known)
        if not 0 < by.constant <= _LARGEST_DIVISOR:
            return False
        count = int(min(held.hi - held.lo + 1, 4 * _LARGEST_DIVISOR + 4))
        if not lanes and not plain and op.name in ("mod", "and"):
            return False  # a ring: `(start + n) % d` for no more than d programs
        images = [
            _image(op.name, x.constant + factor * (held.lo + i), by.constant) for i in range(count)
        ]
        return len(set(images)) < count

    def _sizes(self, axis: int, lanes: bool) -> set[ir.Value]:
        names = () if lanes else extents.names(self.search.kernel.grid[axis])
        return {self.search.domains.scalars[n] for n in names}

    def _overlaps(self, atom: Atom, axis: int) -> bool:
        """True for windows of programs that overlap: `pid + tl.arange(0, 64)`."""
        forms = [f for f in self.store.forms if any(a == atom for a, _ in f.terms)]
        if len(forms) != 1 or not self._digit(atom[0]):
            return False
        step = dict(forms[0].terms)[atom]
        for (value, axes), factor in forms[0].terms:
            op = self.defined.op.get(value)
            if op is None or op.name != "arange" or step % factor:
                continue
            lane, reach = axes[0] or 0, abs(step // factor)
            others = [f for f in self.store.forms if f is not forms[0]]
            alone = not any(a == (value, axes) for f in others for a, _ in f.terms)
            told = axis in self.store.value.programs or lane in self.store.value.lanes
            if told and alone and reach < op.attrs["size"] and self._reaches_all(lane, lanes=True):
                return True
        return False

    def _diagnostic(self, who: str) -> Diagnostic:
        op = self.store.op
        shown = [expression(i, self.defined.op) or "..." for i in self.store.access.indices]
        return Diagnostic(
            "FER313",
            op.span,
            f"{who} write different values to one element of `{self.store.buffer}`:"
            " which one stays is left open",
            "give each lane and program elements of its own (`n = tl.block(0, N, BLOCK)` and"
            " `y[n]`), let a mask choose one of them, or reduce to one value before the store",
            (f"the element is `{self.store.buffer}[{', '.join(shown)}]`",),
        )


def by_size(divisor: Form, known: set[ir.Value]) -> bool:
    """True if ``divisor`` has nothing to do with the sizes that ``known`` are."""
    return not any(value in known for (value, _), _ in divisor.terms)


def _image(name: str, x: int, by: int) -> int:
    if name == "and":
        return x & by
    if name == "shr":
        return x >> by % 32
    return extents.truncate(x, by) if name == "div" else extents.remainder(x, by)
