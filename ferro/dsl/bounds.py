"""Proves at launch that no access leaves its buffer and that no index wraps around 32 bits.

Dimensions and grid are numbers by then. What the proof found is kept per shape, so that a launch of
a known shape costs a look-up. What cannot be proved is refused with the range that was found and
the mask that is missing; an index that comes from data needs a mask or a clamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ferro.dsl import extents as extent_language
from ferro.dsl import ir, launch
from ferro.dsl.arguments import LARGEST, limits
from ferro.dsl.definitions import Definitions, definitions
from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.intervals import Range, exactly, full
from ferro.dsl.launch import LaunchError
from ferro.dsl.linear import Algebra, Form
from ferro.dsl.printer import expression
from ferro.dsl.ranges import Ranges
from ferro.dsl.types import Span, i32

BLOCK = 32
_REMEMBERED = 4096

Scalars = Mapping[str, int | float]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class AccessRange:
    """Where one index of one memory operation lies: ``lo..hi`` inside ``0..extent - 1``."""

    buffer: str
    access: str
    axis: int
    lo: float
    hi: float
    extent: int
    proved: bool
    span: Span


def check(kernel: ir.Kernel, scalars: Scalars, grid: Sequence[int], extents: Shapes) -> None:
    """Refuse a launch whose accesses or index arithmetic are not proved to be in range.

    ``scalars`` holds dimensions and scalar arguments, ``extents`` each buffer's shape, as
    ``launch.bind`` gives them. Raises LaunchError with every finding.
    """
    found = _findings(kernel, scalars, grid, extents)
    if found:
        raise LaunchError(found)


def bind(kernel: ir.Kernel, arguments: Mapping[str, object]) -> launch.Binding:
    """``launch.bind``, whose error then also holds what ``check`` has to say of the arguments."""
    try:
        return launch.bind(kernel, arguments)
    except LaunchError as error:
        bound = error.binding
        if bound is None:
            raise
        found = _findings(kernel, bound.scalars, bound.grid, bound.extents)
        raise LaunchError([*error.diagnostics, *found]) from None


def _findings(
    kernel: ir.Kernel, scalars: Scalars, grid: Sequence[int], extents: Shapes
) -> list[Diagnostic]:
    if 0 in grid:
        return []
    try:
        return _checker(kernel).findings(scalars, tuple(grid), extents)
    except RecursionError:
        return [_too_long(kernel)]


def _too_long(kernel: ir.Kernel) -> Diagnostic:
    return Diagnostic(
        "FER703",
        kernel.span,
        f"an index of `{kernel.name}` is computed in too many steps, each from the one before",
        "let a loop over `range` take the steps, not one over `tl.static_range`",
    )


def access_ranges(
    kernel: ir.Kernel, scalars: Scalars, grid: Sequence[int], extents: Shapes
) -> list[AccessRange]:
    """The range of every index of every memory operation that can run, in program order."""
    return list(_checker(kernel).proof(scalars, tuple(grid), extents, loose=False).accesses())


@dataclass(frozen=True)
class Access:
    """A memory operation, the blocks around it and the conditions under which it runs."""

    op: ir.Op
    blocks: tuple[ir.Block, ...]
    conditions: tuple[tuple[ir.Value, bool], ...]

    @property
    def indices(self) -> tuple[ir.Value, ...]:
        return self.op.args[: self.op.attrs.get("rank", 2)]

    @property
    def mask(self) -> ir.Value | None:
        if not self.op.attrs["masked"]:
            return None
        return self.op.args[-2 if self.op.attrs.get("other") else -1]


class _Checker:
    """What does not depend on the shape, and the findings for shapes already seen."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.defined = definitions(kernel)
        self.accesses = list(accesses(kernel.body))
        self.indexing = list(index_operations(kernel.body, self.defined))
        self.names = sorted(s.name for s in kernel.scalars if s.value.dtype.is_int)
        used = {n for e in self._all_extents() for n in extent_language.names(e)}
        self.loose = {
            s.name: Range(*limits(s))
            for s in kernel.scalars
            if not s.implicit and s.name not in used and None not in (s.lo, s.hi)
        }
        self.known: dict[tuple[object, ...], list[Diagnostic]] = {}

    def _all_extents(self) -> list[ir.Extent]:
        return [*self.kernel.grid, *(e for b in self.kernel.buffers for e in b.extents)]

    def findings(
        self, scalars: Scalars, grid: tuple[int, ...], extents: Shapes
    ) -> list[Diagnostic]:
        # First for every value that the ranged scalars may take, which serves later launches too.
        for loose in (True, False) if self.loose else (False,):
            values = tuple(scalars[n] for n in self.names if not loose or n not in self.loose)
            key = (loose, values, grid, *extents.values())
            if key not in self.known:
                if len(self.known) >= _REMEMBERED:
                    self.known.clear()
                self.known[key] = self.proof(scalars, grid, extents, loose).findings()
            if not self.known[key]:
                return []
        return self.known[key]

    def proof(
        self, scalars: Scalars, grid: tuple[int, ...], extents: Shapes, loose: bool
    ) -> _Proof:
        ranges = {n: exactly(int(scalars[n])) for n in self.names}
        if loose:
            ranges |= self.loose
        return _Proof(self, ranges, grid, extents)


_checkers: WeakKeyDictionary[ir.Kernel, _Checker] = WeakKeyDictionary()


def _checker(kernel: ir.Kernel) -> _Checker:
    if kernel not in _checkers:
        _checkers[kernel] = _Checker(kernel)
    return _checkers[kernel]


class _Proof:
    """One attempt for given numbers."""

    def __init__(
        self,
        checker: _Checker,
        scalars: Mapping[str, Range],
        grid: tuple[int, ...],
        extents: Shapes,
    ) -> None:
        self.checker = checker
        self.extents = extents
        self.ranges = Ranges(checker.kernel, checker.defined, scalars, [exactly(n) for n in grid])
        self._share()
        self.algebra = Algebra(checker.defined, self._range, self._exact)

    def _share(self) -> None:
        # The representative of a value may sit in a block that never runs.
        for value, held in list(self.ranges.of.items()):
            same = self.checker.defined.same(value)
            if same not in self.ranges.of:
                self.ranges.of[same] = held
                if value in self.ranges.overflow:
                    self.ranges.overflow[same] = self.ranges.overflow[value]

    def _range(self, value: ir.Value) -> Range:
        return self.ranges.of.get(value) or full(value.dtype)

    def _exact(self, value: ir.Value) -> bool:
        return value not in self.ranges.overflow and value in self.ranges.of

    def findings(self) -> list[Diagnostic]:
        found = [
            d
            for op, blocks in self.checker.indexing
            if self._runs(blocks)
            for d in self._overflow(op)
        ]
        for access in self.checker.accesses:
            if self._runs(access.blocks):
                found += self._outside(access)
        return list({(d.code, d.span, d.message): d for d in found}.values())

    def accesses(self) -> Iterator[AccessRange]:
        for access in self.checker.accesses:
            if not self._runs(access.blocks):
                continue
            facts = self._facts(access)
            for axis, form, extent in self._axes(access):
                low, high = form.scaled(-1), form.shifted(1 - extent)
                proved = self.algebra.proves(low, facts) and self.algebra.proves(high, facts)
                lo, hi = self._bounds(form, facts)
                yield AccessRange(
                    access.op.attrs["buffer"],
                    access.op.name,
                    axis,
                    lo,
                    hi,
                    extent,
                    proved,
                    access.op.span,
                )

    def _runs(self, blocks: tuple[ir.Block, ...]) -> bool:
        return not any(b in self.ranges.dead for b in blocks)

    def _facts(self, access: Access) -> list[Form]:
        conditions = list(access.conditions)
        if access.mask is not None:
            conditions.append((access.mask, True))
        return [f for value, holds in conditions for f in self.algebra.conditions(value, holds)]

    def _axes(self, access: Access) -> Iterator[tuple[int, Form, int]]:
        extents = self.extents[access.op.attrs["buffer"]]
        if "rank" not in access.op.attrs:
            extents = (extents[0], extent_language.cdiv(extents[1], BLOCK))
        for axis, (index, extent) in enumerate(zip(access.indices, extents, strict=True)):
            yield axis, self.algebra.form(index), extent

    def _bounds(self, form: Form, facts: list[Form]) -> tuple[float, float]:
        return -self.algebra.upper(form.scaled(-1), facts), self.algebra.upper(form, facts)

    def _outside(self, access: Access) -> Iterator[Diagnostic]:
        facts = self._facts(access)
        for axis, form, extent in self._axes(access):
            low = self.algebra.proves(form.scaled(-1), facts)
            high = self.algebra.proves(form.shifted(1 - extent), facts)
            if not (low and high):
                yield self._refusal(access, axis, self._bounds(form, facts), extent, low, high)

    def _refusal(
        self,
        access: Access,
        axis: int,
        bounds: tuple[float, float],
        extent: int,
        low: bool,
        high: bool,
    ) -> Diagnostic:
        buffer = self.checker.kernel.buffer(access.op.attrs["buffer"])
        name = expression(access.indices[axis], self.checker.defined.op)
        declared = extent_language.text(buffer.extents[axis])
        if "rank" not in access.op.attrs and axis == 1:
            declared = f"cdiv({declared}, {BLOCK})"
        shown = declared if declared == str(extent) else f"{declared} = {extent}"
        index = f"`{name}`" if name else f"index {axis}"
        missing = " & ".join(
            f"({name or 'index'} {test})"
            for test, fine in ((">= 0", low), (f"< {declared}", high))
            if not fine
        )
        where = "where the mask holds" if access.mask is not None else "without a mask"
        add = "add" if access.mask is not None else "give the access the mask"
        tail = " to the mask" if access.mask is not None else ""
        return Diagnostic(
            "FER701",
            access.op.span,
            f"{index} may leave axis {axis} of `{buffer.name}`",
            f"{add} `{missing}`{tail}, or clamp the index",
            (
                f"{index} was found in [{bounds[0]}, {bounds[1]}] {where}",
                f"axis {axis} of `{buffer.name}` has extent {shown}",
            ),
        )

    def _overflow(self, op: ir.Op) -> Iterator[Diagnostic]:
        if op.name == "for":
            yield from self._counter(op)
            return
        exact = self.ranges.overflow.get(op.result)
        if exact is None or any(self._range(a) == full(i32) for a in op.args):
            return  # data that may be anything wraps by definition: its accesses need a mask
        name = expression(op.result, self.checker.defined.op)
        yield Diagnostic(
            "FER702",
            op.span,
            f"{f'`{name}`' if name else 'the index computed here'} may not fit in 32 bits",
            "make the launch smaller, or declare the scalar's range or clamp what is too large",
            (f"its values lie in {exact}", f"i32 ends at {LARGEST}"),
        )

    def _counter(self, op: ir.Op) -> Iterator[Diagnostic]:
        start, stop, step = (self._range(a) for a in op.args[:3])
        if start.lo < stop.hi and stop.hi + step.hi - 1 > LARGEST:
            yield Diagnostic(
                "FER702",
                op.span,
                "the counter of this loop may not fit in 32 bits",
                "make the launch smaller, or declare the range of the stop",
                (f"the stop lies in {stop}, the step in {step}",),
            )


def accesses(
    block: ir.Block,
    blocks: tuple[ir.Block, ...] = (),
    conditions: tuple[tuple[ir.Value, bool], ...] = (),
) -> Iterator[Access]:
    """Every load and store, with what encloses it."""
    blocks = (*blocks, block)
    for op in block.ops:
        if op.name in ("load", "store", "load_block", "store_block"):
            yield Access(op, blocks, conditions)
        for number, inner in enumerate(op.blocks):
            given = ((op.args[0], number == 0),) if op.name == "if" else ()
            yield from accesses(inner, blocks, conditions + given)


def index_operations(
    body: ir.Block, defined: Definitions
) -> Iterator[tuple[ir.Op, tuple[ir.Block, ...]]]:
    """Loops, and the i32 operations that an index, a mask or a loop bound is computed from."""
    wanted = _reached(body, defined)
    for op, blocks in _with_blocks(body, ()):
        if op.name == "for" or (
            op.name in ("add", "sub", "mul", "neg", "shl", "abs", "div", "reduce")
            and op.result.dtype is i32
            and op.result in wanted
        ):
            yield op, blocks


def _with_blocks(
    block: ir.Block, outer: tuple[ir.Block, ...]
) -> Iterator[tuple[ir.Op, tuple[ir.Block, ...]]]:
    blocks = (*outer, block)
    for op in block.ops:
        yield op, blocks
        for inner in op.blocks:
            yield from _with_blocks(inner, blocks)


def _reached(body: ir.Block, defined: Definitions) -> set[ir.Value]:
    """Integer and bool values that decide where memory is touched."""
    todo: list[ir.Value] = []
    for access in accesses(body):
        todo += access.indices
        todo += [access.mask] if access.mask is not None else []
    for op in ir.walk(body):
        todo += {"for": op.args[:3], "walk": op.args[:1], "if": op.args[:1]}.get(op.name, ())
    reached: set[ir.Value] = set()
    while todo:
        value = todo.pop()
        if value not in reached and not value.dtype.is_float:
            reached.add(value)
            todo += origins(value, defined)
    return reached


def origins(value: ir.Value, defined: Definitions) -> list[ir.Value]:
    """The values that ``value`` is computed from, through loops; none behind a load."""
    parameter = defined.parameter.get(value)
    if parameter is not None:
        op, position = parameter.op, parameter.position
        if op.name == "for":
            if position == 0:
                return list(op.args[:3])
            return [op.args[2 + position], parameter.op.blocks[0].results[position - 1]]
        return list(op.args) + [r for b in op.blocks for r in b.results]
    made = defined.op.get(value)
    if made is None or made.name.startswith("load"):
        return []
    if made.blocks:
        place = made.results.index(value)
        inner = [b.results[place] for b in made.blocks if place < len(b.results)]
        extra = {"for": 3, "walk": 1}.get(made.name)
        return inner + ([made.args[extra + place]] if extra is not None else [])
    return list(made.args)
