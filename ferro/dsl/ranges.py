"""One pass over a kernel that finds the range of every value for given scalars and grid.

Loops run a few times and are widened where a carried value keeps growing. Blocks that never run
are left out. A result that its dtype cannot hold is any value of the dtype; what it would have been
is kept, for ``bounds.py`` to complain about.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from ferro.dsl import intervals, ir
from ferro.dsl.definitions import Definitions, induction
from ferro.dsl.intervals import ANY_FLOAT, Range, exactly, full, hull, stepped
from ferro.dsl.types import TileType

_PATIENCE = 2
_ROUNDS = 8
_VIEWS = {"broadcast", "expand", "reshape", "transpose"}


class Ranges:
    """``of`` every value that can exist, ``overflow`` the exact range of those that may wrap,
    ``dead`` the blocks that never run."""

    def __init__(
        self,
        kernel: ir.Kernel,
        defined: Definitions,
        scalars: Mapping[str, Range],
        grid: Sequence[Range],
    ) -> None:
        self.defined = defined
        self.of: dict[ir.Value, Range] = {}
        self.overflow: dict[ir.Value, Range] = {}
        self.dead: set[ir.Block] = set()
        self._rest: dict[ir.Block, list[Range]] = {}
        self.scalars = scalars
        self.grid = grid
        self._stops = _stops(kernel, scalars)
        for scalar in kernel.scalars:
            self.of[scalar.value] = self._scalar(scalar.name, scalar.value.type)
        self._block(kernel.body)

    def _block(self, block: ir.Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: ir.Op) -> None:
        special = _OPERATIONS.get(op.name)
        if special is not None:
            special(self, op)
            return
        arguments = [self.of[a] for a in op.args]
        found = intervals.elementwise(op, arguments) if arguments else None
        for result in op.results:
            self._set(result, found if found is not None else full(result.dtype))

    def _set(self, value: ir.Value, found: Range) -> None:
        self.overflow.pop(value, None)
        if value.dtype.is_int and not found.within(full(value.dtype)):
            self.overflow[value] = found
            found = full(value.dtype)
        self.of[value] = found

    def _scalar(self, name: str, type: TileType) -> Range:
        return self.scalars.get(name, full(type.dtype))

    # sources and views

    def _const(self, op: ir.Op) -> None:
        value = op.attrs["value"]
        self.of[op.result] = exactly(value if op.result.dtype.is_float else int(value))
        if value != value:
            self.of[op.result] = ANY_FLOAT

    def _scalar_op(self, op: ir.Op) -> None:
        self.of[op.result] = self._scalar(op.attrs["name"], op.result.type)

    def _program_id(self, op: ir.Op) -> None:
        count = self.grid[op.attrs["axis"]]
        self.of[op.result] = Range(0, max(0, count.hi - 1), int(count.hi > 1))

    def _arange(self, op: ir.Op) -> None:
        start, size = op.attrs["start"], op.attrs["size"]
        self.of[op.result] = Range(start, start + size - 1, int(size > 1))

    def _view(self, op: ir.Op) -> None:
        for result in op.results:
            self.of[result] = self.of[op.args[0]]

    def _join(self, op: ir.Op) -> None:
        self.of[op.result] = hull(self.of[op.args[0]], self.of[op.args[1]])

    def _where(self, op: ir.Op) -> None:
        cond, a, b = (self.of[x] for x in op.args)
        self.of[op.result] = hull(a, b) if not cond.constant else a if cond.lo else b

    def _cast(self, op: ir.Op) -> None:
        (x,) = op.args
        self.of[op.result] = intervals.cast(x.dtype, op.result.dtype, self.of[x])

    def _reduce(self, op: ir.Op) -> None:
        kind, x, dtype = op.attrs["kind"], self.of[op.args[0]], op.result.dtype
        extent = op.args[0].shape[op.attrs["axis"]]
        if kind == "argmax":
            self.of[op.result] = Range(0, extent - 1, int(extent > 1))
        elif kind == "sum" and dtype.is_int:
            self._set(op.result, Range(min(0, x.lo * extent), max(0, x.hi * extent)))
        elif kind == "sum" or op.attrs["masked"]:
            # with every element masked off, max and min give the dtype's extremes
            self.of[op.result] = full(dtype)
        else:
            self.of[op.result] = x

    # control

    def _for(self, op: ir.Op) -> None:
        start, stop, step = (self.of[a] for a in op.args[:3])
        (block,) = op.blocks
        init = [self.of[a] for a in op.args[3:]]
        self.dead.discard(block)
        if start.lo >= stop.hi:
            self.dead.add(block)
            self._results(op, init)
            return
        stride = math.gcd(start.step, step.lo) if step.constant else 1
        self.of[block.params[0]] = stepped(start.lo, stop.hi - 1, stride)
        turns = -(-(stop.hi - start.lo) // step.lo) if step.lo > 0 else 0
        grown = {p: r for p in block.params[1:] if (r := self._grown(p, turns)) is not None}
        found = self._repeat(block.params[1:], init, block, lambda: block.results, grown)
        self._results(op, found)

    def _grown(self, param: ir.Value, turns: int) -> Range | None:
        """The range of a carried value that grows by a constant, at the start of its turns."""
        growth = induction(self.defined, param)
        if growth is None:
            return None
        initial = self.of[growth.initial]
        far = growth.pace * (turns - 1)
        step = math.gcd(initial.step, far and growth.pace)
        found = Range(initial.lo + min(far, 0), initial.hi + max(far, 0), step)
        return found if found.within(full(param.dtype)) else None

    def _repeat(
        self,
        params: Sequence[ir.Value],
        init: Sequence[Range],
        block: ir.Block,
        yielded: Callable[[], Sequence[ir.Value]],
        grown: Mapping[ir.Value, Range],
    ) -> list[Range]:
        """Run ``block`` until its parameters hold what it yields; those in ``grown`` are known.

        A loop in a loop goes on from where it came to rest before: what enters it only grows, and
        all turns together stay few.
        """
        known = self._rest.get(block, init)
        state = [grown.get(p, hull(s, k)) for p, s, k in zip(params, init, known, strict=True)]
        for turn in itertools.count():
            for param, held in zip(params, state, strict=True):
                self.of[param] = held
            self._block(block)
            after = [hull(s, self.of[v]) for s, v in zip(state, yielded(), strict=True)]
            if all(a == s or p in grown for a, s, p in zip(after, state, params, strict=True)):
                self._rest[block] = state
                return after
            after = [grown.get(p, a) for p, a in zip(params, after, strict=True)]
            if turn >= _PATIENCE:
                stops = self._stops if turn < _ROUNDS else []
                after = [
                    _widened(s, a, full(p.dtype), stops)
                    for s, a, p in zip(state, after, params, strict=True)
                ]
            state = after
        raise AssertionError("a widened range is at rest")

    def _if(self, op: ir.Op) -> None:
        cond = self.of[op.args[0]]
        taken = [b for b, wanted in zip(op.blocks, (1, 0), strict=True) if _may_be(cond, wanted)]
        for block in op.blocks:
            self.dead.discard(block)
            if block in taken:
                self._block(block)
            else:
                self.dead.add(block)
        ranges = [[self.of[v] for v in b.results] for b in taken]
        both = ranges[0] if len(ranges) == 1 else [hull(a, b) for a, b in zip(*ranges, strict=True)]
        self._results(op, both)

    def _walk(self, op: ir.Op) -> None:
        n, size = self.of[op.args[0]], op.attrs["size"]
        body, rule = op.blocks
        self.dead -= {body, rule}
        empty = [self.of[a] for a in op.args[1:]]
        if n.hi <= 0:
            self.dead |= {body, rule}
            self._results(op, empty)
            return
        start, stop = body.params
        self.of[start] = stepped(0, n.hi - 1, size)
        first = max(1, min(size, n.lo))
        whole = n.constant and n.lo % size == 0
        self.of[stop] = stepped(first, n.hi, size if whole else 1)
        self._block(body)
        count = len(empty)
        new = [self.of[v] for v in body.results[:count]]
        for param, held in zip(rule.params[count:], new, strict=True):
            self.of[param] = held
        begin = [hull(e, v) for e, v in zip(empty, new, strict=True)]
        found = self._repeat(rule.params[:count], begin, rule, lambda: rule.results, {})
        self._results(op, found)

    def _results(self, op: ir.Op, found: Sequence[Range]) -> None:
        for result, held in zip(op.results, found, strict=True):
            self.of[result] = held


_OPERATIONS: dict[str, Callable[[Ranges, ir.Op], None]] = {
    "const": Ranges._const,
    "scalar": Ranges._scalar_op,
    "program_id": Ranges._program_id,
    "arange": Ranges._arange,
    **dict.fromkeys((*_VIEWS, "split"), Ranges._view),
    "join": Ranges._join,
    "where": Ranges._where,
    "cast": Ranges._cast,
    "reduce": Ranges._reduce,
    "for": Ranges._for,
    "if": Ranges._if,
    "walk": Ranges._walk,
}


def _stops(kernel: ir.Kernel, scalars: Mapping[str, Range]) -> list[int]:
    """Numbers of the program at which a growing value may come to rest."""
    found = {bound for held in scalars.values() for bound in held[:2]}
    found |= {
        op.attrs["value"]
        for op in ir.walk(kernel.body)
        if op.name == "const" and op.result.dtype.is_int
    }
    return sorted({int(n) + d for n in found for d in (-1, 0, 1)})


def _widened(before: Range, after: Range, limits: Range, stops: Sequence[int]) -> Range:
    """``after`` grown to the next of ``stops`` on the sides where it has grown already."""
    lo, hi = after.lo, after.hi
    if lo < before.lo:
        lo = max((n for n in stops if limits.lo <= n <= lo), default=limits.lo)
    if hi > before.hi:
        hi = min((n for n in stops if hi <= n <= limits.hi), default=limits.hi)
    return Range(lo, hi)


def _may_be(cond: Range, wanted: int) -> bool:
    return bool(cond.lo <= wanted <= cond.hi)
