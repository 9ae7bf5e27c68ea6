"""How far coordinates reach, and proofs that masks cut off what the last tile covers too much.

A coordinate runs over whole tiles, past the end of its loop or grid by an amount that depends on
the tile size. Whatever leaves the coordinate (a store, a reduction) must be masked by the end, or
hold a number there that changes nothing (``padding.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferro.dsl import extents, ir, limits
from ferro.dsl.arguments import LARGEST
from ferro.dsl.arguments import limits as range_of_scalar
from ferro.dsl.bounds import Access
from ferro.dsl.definitions import Definitions
from ferro.dsl.intervals import Range, exactly, full
from ferro.dsl.linear import Algebra, Form
from ferro.dsl.printer import expression
from ferro.dsl.ranges import Ranges
from ferro.dsl.tiles import ANY, Axis, Coordinate, Part, Problem
from ferro.dsl.types import i32
from ferro.dsl.unbounded import Unbounded

Number = float | int


@dataclass(frozen=True)
class Reach:
    """How far tiles go: to ``end`` from ``start``, or a known ``count`` of tiles."""

    start: Form = Form(0)
    end: Form | None = None
    count: int = 0


class Domains:
    """Proofs about one kernel for every size its dimensions may have."""

    def __init__(self, kernel: ir.Kernel, defined: Definitions) -> None:
        self.kernel = kernel
        self.defined = defined
        scalars = {
            s.name: Range(*range_of_scalar(s)) for s in kernel.scalars if s.value.dtype.is_int
        }
        self._ranges = Ranges(kernel, defined, scalars, [_count_range(e) for e in kernel.grid])
        self.algebra = Algebra(defined, self.range_of, self._exact)
        self._unbounded = Unbounded(defined)
        self.reaches: dict[ir.Value, Reach] = {}
        self.factors: dict[ir.Value, dict[int, ir.Value]] = {}
        self._counts: dict[ir.Value, ir.Extent] = {}
        self._divisors: dict[ir.Value, ir.Value] = {}
        self.scalars = {s.name: s.value for s in kernel.scalars}
        self._read: dict[ir.Value, ir.Extent | None] = {}
        self._expressions = {
            e: op.result
            for op in ir.walk(kernel.body)
            if len(op.results) == 1
            for e in [self._expression(op.result)]
            if e is not None
        }

    # numbers and sizes

    def number(self, value: ir.Value) -> int | None:
        """The integer that every element of ``value`` is, if it is known."""
        form = self.algebra.form(value) if value.dtype.is_int else None
        return None if form is None or form.terms else form.constant

    # origins of coordinates

    def programs(self, origin: ir.Value, count: ir.Extent) -> Part:
        """Note that ``origin`` runs over ``count``; the part of a coordinate that it is."""
        self._counts[origin] = count
        if count[0] == "const":
            self.reaches[origin] = Reach(count=int(count[1]))
            return Part("count", origin, ANY)
        whole = count[0] == "cdiv" and count[2][0] == "const"
        if not whole or extents.from_schedule(count[1]):
            return Part("count", origin)
        self.reaches[origin] = Reach(end=self._extent_form(count[1]))
        return Part("count", origin, int(count[2][1]))

    def steps(self, loop: ir.Op) -> Part:
        """Note a loop whose step is a tile size; the part that its counter is."""
        counter = loop.blocks[0].params[0]
        start, stop = (self.algebra.form(v) for v in loop.args[:2])
        self.reaches[counter] = Reach(start, stop)
        return Part("loop", counter, self.number(loop.args[2]) or 0)

    def turns(self, loop: ir.Op) -> tuple[Part, ir.Value | None] | None:
        """Note a loop over ``range(0, cdiv(n, BLOCK))``; its counter's part and ``n`` (None if it
        is a number)."""
        counter = loop.blocks[0].params[0]
        start, stop, step = loop.args[:3]
        if self.number(start) != 0 or self.number(step) != 1:
            return None
        made = self.defined.op.get(stop)
        if made is not None and made.name == "const" and "schedule" in made.attrs:
            self.reaches[counter] = Reach(count=int(made.attrs["value"]))
            return Part("count", counter, ANY), None
        rounded = self._rounded_up(made)
        if rounded is None:
            return None
        length, size = rounded
        self.reaches[counter] = Reach(end=self.algebra.form(length))
        return Part("count", counter, size), length

    def _rounded_up(self, op: ir.Op | None) -> tuple[ir.Value, int] | None:
        """``n`` and the tile size of ``(n + (size - 1)) // size``."""
        if op is None or op.name != "div":
            return None
        total, divisor = (self.defined.op.get(a) for a in op.args)
        if total is None or total.name != "add" or divisor is None or divisor.name != "const":
            return None
        size = int(divisor.attrs["value"])
        marked = "schedule" in divisor.attrs and self.number(total.args[1]) == size - 1
        return (total.args[0], size) if marked else None

    def factor(self, op: ir.Op, origin: ir.Value) -> ir.Extent | None:
        """What ``origin // d`` or ``origin % d`` runs over, where the programs along ``origin`` are
        a product and ``d`` is one of its factors."""
        count, divisor = self._counts.get(origin), self.defined.same(op.args[1])
        if count is None or count[0] != "*":
            return None
        if self._divisors.setdefault(origin, divisor) is not divisor:
            return None  # two ways to take one number apart need not cover every pair
        wanted = self._expression(divisor)
        sides = [extents.simplify(e) for e in count[1:]]
        if wanted not in sides:
            return None
        right = sides[1] == wanted
        side = 2 if right == (op.name == "mod") else 1
        self.factors.setdefault(origin, {})[side] = self.defined.same(op.result)
        return count[side]

    def range_of(self, value: ir.Value) -> Range:
        return self._ranges.of.get(value) or full(value.dtype)

    def _exact(self, value: ir.Value) -> bool:
        """True if a sum cannot wrap once the launch's bounds are proved: its operands are not data
        that may be anything."""
        op = self.defined.op.get(value)
        return (
            value.dtype is i32
            and op is not None
            and not any(self._unbounded.either(a) for a in op.args)
        )

    # the end of a coordinate

    def stored(self, op: ir.Op, axes: Sequence[Axis]) -> Problem | None:
        """A store that the last tile would widen by an amount that depends on the tile size."""
        facts = self.mask_facts(op) + self.inside(op)
        origins = [a.origin for a in axes if isinstance(a, Coordinate)]
        if len(set(origins)) < len(origins):
            return Problem(
                "FER512",
                op.span,
                "two axes of this store run over one tile: which pairs meet depends on its size",
                "index the two axes by different loops or programs",
            )
        for axis, coordinate in enumerate(axes):
            if isinstance(coordinate, Coordinate) and not self.ends(coordinate, axis, facts):
                name = self.end_text(coordinate)
                return Problem(
                    "FER515",
                    op.span,
                    "the last tile is stored without a mask at its end: how far"
                    " it reaches depends on the tile size",
                    f"add `& ({name})` to the mask of the store"
                    if op.attrs["masked"]
                    else f"mask the store with `{name}`",
                )
        return None

    def masked(self, mask: ir.Value, axis: int, coordinate: Coordinate) -> bool:
        """True if ``mask`` holds only where ``coordinate``, along ``axis``, is before its end."""
        return self.ends(coordinate, axis, self.algebra.conditions(mask))

    def ends(self, coordinate: Coordinate, axis: int, facts: list[Form]) -> bool:
        """True if ``facts`` place ``coordinate`` before its end, or its tiles end there exactly."""
        here, reach = self.position(coordinate, axis), self.reaches[coordinate.origin]
        if reach.end is not None:
            length = reach.end - reach.start
            even = not length.terms and length.constant % coordinate.size == 0
            return even or self.algebra.proves((here - reach.end).shifted(1), facts)
        # A known number of tiles: any end that the mask gives will do if the tiles get there.
        rests = [f - here for f in facts]
        return any(not r.terms and 1 - r.constant <= reach.count * coordinate.size for r in rests)

    def position(self, coordinate: Coordinate, axis: int) -> Form:
        """The coordinate along ``axis`` as a form of its origin and its offset."""
        origin = self.algebra.form(coordinate.origin).scaled(coordinate.factor)
        return origin + self.algebra.form(coordinate.offset, (axis,))

    def end_text(self, coordinate: Coordinate) -> str:
        """The mask that cuts the coordinate off at its end, as its author would write it."""
        index = self._index_name(coordinate)
        count = self._counts.get(coordinate.origin)
        if count is not None:
            return f"{index} < {extents.text(count[1] if count[0] == 'cdiv' else count)}"
        stop = self.defined.parameter[coordinate.origin].op.args[1]
        return f"{index} < {expression(stop, self.defined.op) or 'stop'}"

    def _index_name(self, coordinate: Coordinate) -> str:
        """The variable that holds the coordinate: the sum of its origin and its offset."""
        for value, op in self.defined.op.items():
            if value.name and op.name == "add" and self.defined.same(value) is value:
                form = self.algebra.form(value)
                if value.type.rank == 1 and form == self.position(coordinate, 0):
                    return value.name
        return "index"

    # extents as forms

    def _extent_form(self, extent: ir.Extent) -> Form | None:
        if extent[0] == "const":
            return Form(extent[1])
        if extent[0] == "name":
            return self.algebra.form(self.scalars[extent[1]])
        known = self._expressions.get(extents.simplify(extent))
        if known is not None:
            return self.algebra.form(known)
        sides = [self._extent_form(e) for e in extent[1:]]
        if extent[0] not in ("+", "-", "*") or None in sides:
            return None
        left, right = (s for s in sides if s is not None)
        if extent[0] != "*":
            return left + right if extent[0] == "+" else left - right
        if not right.terms:
            return left.scaled(right.constant)
        return right.scaled(left.constant) if not left.terms else None

    def _expression(self, value: ir.Value) -> ir.Extent | None:
        """A scalar read back as an extent, as the front end reads the counts of grids; None for
        one that no grid would be made of."""
        if value not in self._read:
            self._read[value] = self._as_extent(value)
        return self._read[value]

    def _as_extent(self, value: ir.Value) -> ir.Extent | None:
        op = self.defined.op.get(value)
        if op is None or value.dtype is not i32 or value.shape:
            return None
        if op.name == "scalar":
            return extents.name(op.attrs["name"])
        if op.name == "const":
            return extents.const(op.attrs["value"], "schedule" in op.attrs)
        if op.name not in _EXTENT_OPERATORS:
            return None
        sides = [self._expression(a) for a in op.args]
        known = [s for s in sides if s is not None]
        if len(known) < len(sides) or sum(map(extents.length, known)) >= limits.EXTENT:
            return None
        return extents.simplify((_EXTENT_OPERATORS[op.name], *known))

    # facts

    def mask_facts(self, op: ir.Op) -> list[Form]:
        mask = Access(op, (), ()).mask
        return self.algebra.conditions(mask) if mask is not None else []

    def inside(self, op: ir.Op) -> list[Form]:
        """Every index is inside its extent: the launch refuses otherwise."""
        if "rank" not in op.attrs:
            indices, sizes = op.args[:1], self.kernel.buffer(op.attrs["buffer"]).extents[:1]
        else:
            indices = Access(op, (), ()).indices
            sizes = self.kernel.buffer(op.attrs["buffer"]).extents
        facts = []
        for index, size in zip(indices, sizes, strict=True):
            end = self._extent_form(size)
            if end is not None and not extents.from_schedule(size):
                facts.append((self.algebra.form(index) - end).shifted(1))
        return facts


_EXTENT_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "//",
    "mod": "%",
    "min": "min",
    "max": "max",
}


def _count_range(count: ir.Extent) -> Range:
    return exactly(count[1]) if count[0] == "const" else Range(0, LARGEST)
