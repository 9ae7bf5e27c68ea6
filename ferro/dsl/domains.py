"""What the last tile covers too much: proofs that masks cut it off, and hazards in place.

A coordinate runs over whole tiles, past the end of its loop or grid by an amount that depends on
the tile size. Whatever leaves the coordinate (a store, a reduction) must be masked by the end, or
hold a number there that changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ferro.dsl import extents, ir
from ferro.dsl.arguments import LARGEST, limits
from ferro.dsl.bounds import Access, accesses
from ferro.dsl.definitions import Axes, Definitions, induction, source
from ferro.dsl.intervals import Range, exactly, full
from ferro.dsl.linear import Algebra, Form
from ferro.dsl.printer import expression
from ferro.dsl.ranges import Ranges
from ferro.dsl.tiles import ANY, Axis, Coordinate, Part, Problem, State
from ferro.dsl.types import DType, Span, boolean, f32, i32

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
        scalars = {s.name: Range(*limits(s)) for s in kernel.scalars if s.value.dtype.is_int}
        self._ranges = Ranges(kernel, defined, scalars, [_count_range(e) for e in kernel.grid])
        self._algebra = Algebra(defined, self._range, self._exact)
        self._unbounded: dict[ir.Value, tuple[bool, bool]] = {}
        self._spans: dict[ir.Value, Reach] = {}
        self._counts: dict[ir.Value, ir.Extent] = {}
        self._divisors: dict[ir.Value, ir.Value] = {}
        self._scalars = {s.name: s.value for s in kernel.scalars}
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
        form = self._algebra.form(value) if value.dtype.is_int else None
        return None if form is None or form.terms else form.constant

    # origins of coordinates

    def programs(self, origin: ir.Value, count: ir.Extent) -> Part:
        """Note that ``origin`` runs over ``count``; the part of a coordinate that it is."""
        self._counts[origin] = count
        if count[0] == "const":
            self._spans[origin] = Reach(count=int(count[1]))
            return Part("count", origin, ANY)
        whole = count[0] == "cdiv" and count[2][0] == "const"
        if not whole or extents.from_schedule(count[1]):
            return Part("count", origin)
        self._spans[origin] = Reach(end=self._extent_form(count[1]))
        return Part("count", origin, int(count[2][1]))

    def steps(self, loop: ir.Op) -> Part:
        """Note a loop whose step is a tile size; the part that its counter is."""
        counter = loop.blocks[0].params[0]
        start, stop = (self._algebra.form(v) for v in loop.args[:2])
        self._spans[counter] = Reach(start, stop)
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
            self._spans[counter] = Reach(count=int(made.attrs["value"]))
            return Part("count", counter, ANY), None
        rounded = self._rounded_up(made)
        if rounded is None:
            return None
        length, size = rounded
        self._spans[counter] = Reach(end=self._algebra.form(length))
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
        place = 1 - sides[::-1].index(wanted)
        return count[1 + place] if op.name == "mod" else count[2 - place]

    def _range(self, value: ir.Value) -> Range:
        return self._ranges.of.get(value) or full(value.dtype)

    def _exact(self, value: ir.Value) -> bool:
        """True if a sum cannot wrap once the launch's bounds are proved: its operands are not data
        that may be anything."""
        op = self.defined.op.get(value)
        return (
            value.dtype is i32 and op is not None and not any(any(self._open(a)) for a in op.args)
        )

    def _open(self, value: ir.Value) -> tuple[bool, bool]:
        """Whether data leaves the value without a lower, an upper bound."""
        value = self.defined.same(value)
        if value not in self._unbounded:
            self._unbounded[value] = (True, True)  # meanwhile, for a value carried around
            self._unbounded[value] = self._open_by(value)
        return self._unbounded[value]

    def _open_by(self, value: ir.Value) -> tuple[bool, bool]:
        parameter = self.defined.parameter.get(value)
        if parameter is not None:
            growth = induction(self.defined, value)
            if growth is not None:
                return self._open(growth.initial)
            carried = parameter.op.name == "for" and parameter.position > 0
            rule = parameter.op.name == "walk" and parameter.block > 0
            return (carried or rule,) * 2
        op = self.defined.op.get(value)
        if op is None or (not op.args and not op.name.startswith("load")):
            return (False, False)
        if op.blocks or op.name in ("load", "bitcast"):
            return (True, True)
        if op.name == "cast" and op.args[0].dtype is not i32:
            return (op.args[0].dtype.size >= 4,) * 2
        flags = [self._open(a) for a in op.args if a.dtype is not boolean]
        lows, highs = [f[0] for f in flags], [f[1] for f in flags]
        if op.name == "min":
            return any(lows), all(highs)
        if op.name == "max":
            return all(lows), any(highs)
        return (any(lows) or any(highs),) * 2

    # the end of a coordinate

    def stored(self, op: ir.Op, axes: Sequence[Axis]) -> Problem | None:
        """A store that the last tile would widen by an amount that depends on the tile size."""
        facts = self._mask_facts(op) + self._inside(op)
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
                name = self._end_text(coordinate)
                return Problem(
                    "FER515",
                    op.span,
                    "the last tile is stored without a mask at its end: how far"
                    " it reaches depends on the tile size",
                    f"mask the store with `{name}`",
                )
        return None

    def masked(self, mask: ir.Value, axis: int, coordinate: Coordinate) -> bool:
        """True if ``mask`` holds only where ``coordinate``, along ``axis``, is before its end."""
        return self.ends(coordinate, axis, self._algebra.conditions(mask))

    def ends(self, coordinate: Coordinate, axis: int, facts: list[Form]) -> bool:
        """True if ``facts`` place ``coordinate`` before its end, or its tiles end there exactly."""
        here, reach = self._form(coordinate, axis), self._spans[coordinate.origin]
        if reach.end is not None:
            length = reach.end - reach.start
            even = not length.terms and length.constant % coordinate.size == 0
            return even or self._algebra.proves((here - reach.end).shifted(1), facts)
        # A known number of tiles: any end that the mask gives will do if the tiles get there.
        rests = [f - here for f in facts]
        return any(not r.terms and 1 - r.constant <= reach.count * coordinate.size for r in rests)

    def _form(self, coordinate: Coordinate, axis: int) -> Form:
        origin = self._algebra.form(coordinate.origin).scaled(coordinate.factor)
        return origin + self._algebra.form(coordinate.offset, (axis,))

    def _end_text(self, coordinate: Coordinate) -> str:
        count = self._counts.get(coordinate.origin)
        if count is not None:
            return f"index < {extents.text(count[1] if count[0] == 'cdiv' else count)}"
        stop = self.defined.parameter[coordinate.origin].op.args[1]
        end = expression(stop, self.defined.op) or "stop"
        return f"{coordinate.origin.name or 'counter'} + offset < {end}"

    # extents as forms

    def _extent_form(self, extent: ir.Extent) -> Form | None:
        if extent[0] == "const":
            return Form(extent[1])
        if extent[0] == "name":
            return self._algebra.form(self._scalars[extent[1]])
        known = self._expressions.get(extents.simplify(extent))
        if known is not None:
            return self._algebra.form(known)
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
        """A scalar read back as an extent, as the front end reads the counts of grids."""
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
        return None if None in sides else extents.simplify((_EXTENT_OPERATORS[op.name], *sides))

    # facts

    def _mask_facts(self, op: ir.Op) -> list[Form]:
        mask = Access(op, (), ()).mask
        return self._algebra.conditions(mask) if mask is not None else []

    def _inside(self, op: ir.Op) -> list[Form]:
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
                facts.append((self._algebra.form(index) - end).shifted(1))
        return facts

    # what is past the end

    def outside(self, value: ir.Value, axis: int | None, coordinate: Coordinate) -> Number | None:
        """The number that ``value`` is wherever ``coordinate``, along ``axis``, is past its end."""
        op = self.defined.op.get(value)
        if op is None:
            return None
        if op.name == "const":
            return op.attrs["value"]
        shown = source(op, _one_hot(axis, value.type.rank))
        if shown is not None:
            return self.outside(shown[0], _place(shown[1]), coordinate)
        if op.name in ("load", "load_block"):
            return self._loaded(op, axis, coordinate)
        if op.name == "where":
            return self._chosen(op, axis, coordinate)
        if op.name == "cast":
            return _converted(self.outside(op.args[0], axis, coordinate), op.result.dtype)
        if op.name in _FOLDS and value.dtype in (f32, i32):
            numbers = [self.outside(a, axis, coordinate) for a in op.args]
            if None not in numbers:
                with np.errstate(all="ignore"):
                    folded = _FOLDS[op.name](*(value.dtype.numpy.type(n) for n in numbers))
                return folded.item()
        return None

    def _loaded(self, op: ir.Op, axis: int | None, coordinate: Coordinate) -> Number | None:
        mask = Access(op, (), ()).mask
        if mask is None or axis is None or axis >= mask.type.rank:
            return None
        if not self.masked(mask, axis, coordinate):
            return None
        if op.name == "load_block":
            return 0
        return self.outside(op.args[-1], axis, coordinate) if op.attrs["other"] else None

    def _chosen(self, op: ir.Op, axis: int | None, coordinate: Coordinate) -> Number | None:
        cond, a, b = op.args
        if axis is None:
            return None
        if self.ends(coordinate, axis, self._algebra.conditions(cond, True)):
            return self.outside(b, axis, coordinate)
        if self.ends(coordinate, axis, self._algebra.conditions(cond, False)):
            return self.outside(a, axis, coordinate)
        return None

    def constant(self, value: ir.Value) -> Number | None:
        """The number that every element of ``value`` is, seen through views."""
        op = self.defined.op.get(value)
        while op is not None and op.name == "broadcast":
            op = self.defined.op.get(op.args[0])
        return op.attrs["value"] if op is not None and op.name == "const" else None

    # what is written twice, or read and written

    def hazards(self, states: Mapping[ir.Value, State]) -> Iterator[Problem]:
        """Elements that are written at one coordinate and used at another, in one loop over tiles
        or in programs that are tiles: the tile size decides what comes first."""
        found = [a for a in accesses(self.kernel.body) if a.op.name in ("load", "store")]
        for number, store in enumerate(found):
            for place, other in enumerate(found):
                same = store.op.attrs["buffer"] == other.op.attrs["buffer"]
                twice = other.op.name == "store" and place >= number
                if store.op.name != "store" or not same or twice:
                    continue
                if not self._apart(store, other, states):
                    yield _hazard(store.op.attrs["buffer"], store.op.span, other.op.span)

    def _apart(self, a: Access, b: Access, states: Mapping[ir.Value, State]) -> bool:
        wanted = self._shared_tiles(a, b)
        pairs = list(zip(a.indices, b.indices, strict=True))
        forms = [(self._algebra.form(x), self._algebra.form(y)) for x, y in pairs]
        if not wanted or any(self._never_equal(*f, a.op, b.op) for f in forms):
            return True
        for (x, y), (mine, theirs) in zip(pairs, forms, strict=True):
            mutual = states[x].coordinates
            if len(mutual) == 1 and mutual == states[y].coordinates and mine == theirs:
                wanted.discard(mutual[0].origin)
        return not wanted

    def _shared_tiles(self, a: Access, b: Access) -> set[ir.Value]:
        """Origins of tiles that both operations run in."""
        blocks = set(a.blocks) & set(b.blocks)
        return {
            origin
            for origin in self._spans
            if origin not in self.defined.parameter
            or self.defined.parameter[origin].op.blocks[0] in blocks
        }

    def _never_equal(self, mine: Form, theirs: Form, a: ir.Op, b: ir.Op) -> bool:
        difference = mine - theirs
        grid = math.gcd(*(f for _, f in mine.terms), *(f for _, f in theirs.terms))
        if not difference.terms and grid > 1 and difference.constant % grid:
            return True
        for one, other, op1, op2 in ((mine, theirs, a, b), (theirs, mine, b, a)):
            tops = self._bounds(one, self._mask_facts(op1))
            floors = self._bounds(other.scaled(-1), self._mask_facts(op2))
            if any(self._algebra.proves((t + f).shifted(1)) for t in tops for f in floors):
                return True
        return False

    def _bounds(self, form: Form, facts: list[Form]) -> list[Form]:
        """Upper bounds of ``form`` that mention scalars only."""
        candidates = [form, *self._algebra.eliminations(form, facts)]
        return [b for b in map(self._at_most, candidates) if b is not None]

    def _at_most(self, form: Form) -> Form | None:
        """The form with everything that varies replaced by its largest value."""
        bound = Form(form.constant)
        for (value, axes), factor in form.terms:
            held = self._range(value)
            if value in self._scalars.values():
                bound = bound + self._algebra.form(value, axes).scaled(factor)
            elif factor < 0 or held.hi < LARGEST:
                bound = bound.shifted(factor * (held.hi if factor > 0 else held.lo))
            else:
                return None
        return bound


_EXTENT_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "//",
    "mod": "%",
    "min": "min",
    "max": "max",
}
_FOLDS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
}


def _count_range(count: ir.Extent) -> Range:
    return exactly(count[1]) if count[0] == "const" else Range(0, LARGEST)


def _converted(number: Number | None, dtype: DType) -> Number | None:
    """A number after a cast that leaves its value alone."""
    if number is None or isinstance(number, bool):
        return None
    with np.errstate(all="ignore"):
        fits = dtype.is_float or math.isfinite(number)
        same = np.asarray(number).astype(dtype.numpy).item() if fits else None
    return same if same == number else None


def _one_hot(axis: int | None, rank: int) -> Axes:
    return tuple(0 if n == axis else None for n in range(rank))


def _place(axes: Axes) -> int | None:
    return axes.index(0) if 0 in axes else None


def _hazard(name: str, span: Span, other: Span) -> Problem:
    return Problem(
        "FER517",
        span,
        f"`{name}` is written here and used at line {other.line} by another index:"
        " which of the two comes first depends on the tile size",
        "use one index for reading and writing in place, or write to a buffer of its own",
    )
