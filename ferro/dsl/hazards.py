"""Elements that are written at one coordinate and used at another.

Where a store and another use of the buffer run in one loop over tiles, or in programs that are
tiles, the tile size decides which of the two comes first, unless both touch an element at the same
coordinate only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ferro.dsl import extents, ir
from ferro.dsl.arguments import LARGEST
from ferro.dsl.bounds import Access, accesses
from ferro.dsl.definitions import Definitions
from ferro.dsl.domains import Domains
from ferro.dsl.linear import Form
from ferro.dsl.tiles import Coordinate, Problem, State

_MEMORY = ("load", "store", "store_block")


def hazards(
    kernel: ir.Kernel, domains: Domains, states: Mapping[ir.Value, State]
) -> Iterator[Problem]:
    """Every pair of a store and another use of its buffer whose order depends on a tile size."""
    found = [a for a in accesses(kernel.body) if a.op.name in _MEMORY]
    search = _Search(kernel, domains, states)
    for number, store in enumerate(found):
        for place, other in enumerate(found):
            same = store.op.attrs["buffer"] == other.op.attrs["buffer"]
            twice = other.op.name != "load" and place >= number
            if store.op.name != "load" and same and not twice and not search.apart(store, other):
                yield _problem(store, other)


class _Search:
    def __init__(
        self, kernel: ir.Kernel, domains: Domains, states: Mapping[ir.Value, State]
    ) -> None:
        self.kernel = kernel
        self.domains = domains
        self.defined = domains.defined
        self.algebra = domains.algebra
        self.states = states
        self.programs = list(self._program_tiles(kernel))

    def _program_tiles(self, kernel: ir.Kernel) -> Iterator[ir.Value | None]:
        """The numbers of the tiles that programs are; None for one that nothing uses."""
        numbers = {
            op.attrs["axis"]: self.defined.same(op.result)
            for op in ir.walk(kernel.body)
            if op.name == "program_id"
        }
        for axis, count in enumerate(kernel.grid):
            origin = numbers.get(axis)
            taken = self.domains.factors.get(origin) if origin is not None else None
            if taken is None:
                yield from [origin] if extents.from_schedule(count) else []
                continue
            yield from (taken.get(n) for n in (1, 2) if extents.from_schedule(count[n]))

    def apart(self, a: Access, b: Access) -> bool:
        """True if the two meet in one element at one coordinate only, or not at all."""
        wanted = self._shared_tiles(a, b)
        pairs = list(zip(a.indices, b.indices, strict=True))
        forms = [(self.algebra.form(x), self.algebra.form(y)) for x, y in pairs]
        if not wanted or any(self._never_equal(*f, a, b) for f in forms):
            return True
        for (x, y), (mine, theirs) in zip(pairs, forms, strict=True):
            mutual = self.states[x].coordinates
            alike = mutual == self.states[y].coordinates and mine == theirs
            if len(mutual) == 1 and alike and self._tells(mine, x, mutual[0]):
                wanted.discard(mutual[0].origin)
        return not wanted

    def _tells(self, form: Form, index: ir.Value, coordinate: Coordinate) -> bool:
        """True if equal indices are at one coordinate: the index is a multiple of it, what is the
        same in every tile, and something that varies by less than that multiple."""
        axis = self.states[index].axes.index(coordinate)
        position = self.domains.position(coordinate, axis)
        if not position.terms:  # one tile of one element
            return True
        atom, step = next(iter(position.terms))
        factor = dict(form.terms).get(atom, 0) // step
        rest = form - position.scaled(factor)
        made = self._made_in_tiles(coordinate.origin)
        steady = _Steady(self.defined, made)
        varying = Form(0, frozenset(t for t in rest.terms if not steady.of(t[0][0])))
        return self.algebra.most(varying) - self.algebra.least(varying) < abs(factor)

    def _made_in_tiles(self, origin: ir.Value) -> set[ir.Value]:
        """The values that each of the tiles that ``origin`` numbers makes anew."""
        loop = self.defined.parameter.get(origin)
        body = self.kernel.body if loop is None else loop.op.blocks[0]
        made = set(body.params)
        for op in ir.walk(body):
            made.update(op.results, *(block.params for block in op.blocks))
        return made

    def _shared_tiles(self, a: Access, b: Access) -> set[ir.Value | None]:
        blocks = set(a.blocks) & set(b.blocks)
        parameters = self.defined.parameter
        counters = [v for v in self.domains.reaches if v in parameters]
        return {
            *self.programs,
            *(v for v in counters if parameters[v].op.blocks[0] in blocks),
        }

    def _never_equal(self, mine: Form, theirs: Form, a: Access, b: Access) -> bool:
        difference = mine - theirs
        grid = math.gcd(*(f for _, f in mine.terms), *(f for _, f in theirs.terms))
        if not difference.terms and grid > 1 and difference.constant % grid:
            return True
        for one, other, first, second in ((mine, theirs, a, b), (theirs, mine, b, a)):
            tops = self._bounds(one, self.domains.mask_facts(first.op))
            floors = self._bounds(other.scaled(-1), self.domains.mask_facts(second.op))
            if any(self.algebra.proves((t + f).shifted(1)) for t in tops for f in floors):
                return True
        return False

    def _bounds(self, form: Form, facts: list[Form]) -> list[Form]:
        """Upper bounds of ``form`` that mention scalars only."""
        candidates = [form, *self.algebra.eliminations(form, facts)]
        return [b for b in map(self._at_most, candidates) if b is not None]

    def _at_most(self, form: Form) -> Form | None:
        """The form with everything that varies replaced by its largest value."""
        bound = Form(form.constant)
        for (value, axes), factor in form.terms:
            held = self.domains.range_of(value)
            if value in self.domains.scalars.values():
                bound = bound + self.algebra.form(value, axes).scaled(factor)
            elif factor < 0 or held.hi < LARGEST:
                bound = bound.shifted(factor * (held.hi if factor > 0 else held.lo))
            else:
                return None
        return bound


class _Steady:
    """Which scalars are the same in every tile; ``made`` are the values that a tile makes."""

    def __init__(self, defined: Definitions, made: set[ir.Value]) -> None:
        self.defined = defined
        self.made = made
        self._known: dict[ir.Value, bool] = {}

    def of(self, value: ir.Value) -> bool:
        if value not in self._known:
            self._known[value] = self._computed(value)
        return self._known[value]

    def _computed(self, value: ir.Value) -> bool:
        if value.shape or value not in self.made:
            return not value.shape
        op = self.defined.op.get(value)
        if op is None or op.blocks or op.name.startswith("load"):
            return False
        return all(self.of(a) for a in op.args)


def _problem(store: Access, other: Access) -> Problem:
    return Problem(
        "FER517",
        store.op.span,
        f"`{store.op.attrs['buffer']}` is written here and used at line {other.op.span.line} by"
        " another index: which of the two comes first depends on the tile size",
        "use one index for reading and writing in place, or write to a buffer of its own",
    )
