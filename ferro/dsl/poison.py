"""Lanes that a load's mask switches off: without `other=` nothing may depend on them.

Every value is followed with the conditions under which its elements have a value. A store, an
index, a branch and the bounds of a loop need one: what they use must be implied by their own mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ferro.dsl import ir
from ferro.dsl.bounds import Access
from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.domains import Domains
from ferro.dsl.implications import Condition, Given, Implications
from ferro.dsl.linear import Form
from ferro.dsl.printer import expression


@dataclass(frozen=True)
class Need:
    """``condition`` must hold for an element to have a value, because of ``load``; None: no
    condition can be named any more."""

    load: ir.Op
    condition: Condition | None


Needs = frozenset[Need]
NONE: Needs = frozenset()
# Where each axis of an operand is in the result; None where it is no single axis any more.
Places = Sequence[int | None]


def check(kernel: ir.Kernel, domains: Domains) -> list[Diagnostic]:
    """Every masked load without `other=` whose masked lanes may reach memory or a decision."""
    loads = [op for op in ir.walk(kernel.body) if op.name == "load"]
    if all(op.attrs["other"] or not op.attrs["masked"] for op in loads):
        return []
    return list(_Analysis(kernel, domains).findings())


class _Analysis:
    def __init__(self, kernel: ir.Kernel, domains: Domains) -> None:
        self.kernel = kernel
        self.domains = domains
        self.implications = Implications(domains)
        self.needs: dict[ir.Value, Needs] = {s.value: NONE for s in kernel.scalars}
        # The loops that make a value anew in every turn.
        self.loops: dict[ir.Value, frozenset[ir.Block]] = {}
        self.around: list[ir.Block] = []
        self.branches: list[tuple[ir.Value, bool]] = []
        self.written = {b.name for b in kernel.buffers if b.access != "in"}
        self.found: dict[ir.Op, tuple[ir.Op, str]] = {}
        self._rest: dict[ir.Block, list[Needs]] = {}

    def findings(self) -> Iterator[Diagnostic]:
        self._block(self.kernel.body)
        for load, (user, what) in self.found.items():
            yield self._diagnostic(load, user, what)

    def _diagnostic(self, load: ir.Op, user: ir.Op, what: str) -> Diagnostic:
        mask = Access(load, (), ()).mask
        text = expression(mask, self.domains.defined.op) if mask is not None else None
        zero = "0.0" if load.result.dtype.is_float else "0"
        same = f", or switch off what they reach by `{text}` too" if text else ""
        return Diagnostic(
            "FER312",
            load.span,
            f"lanes that this mask switches off have no value, and {what} at line"
            f" {user.span.line} may use them",
            f"say what they are with `other={zero}`{same}",
            (f"the mask is `{text}`",) if text else (),
        )

    # operations

    def _block(self, block: ir.Block) -> None:
        for op in block.ops:
            self.loops.update(dict.fromkeys(op.results, self._loops_of(op)))
            handler = _OPERATIONS.get(op.name, _Analysis._elementwise)
            handler(self, op)

    def _loops_of(self, op: ir.Op) -> frozenset[ir.Block]:
        if op.blocks or (op.name == "load" and op.attrs["buffer"] in self.written):
            return frozenset(self.around)
        return frozenset[ir.Block]().union(*(self._loops(a) for a in op.args))

    def _loops(self, value: ir.Value) -> frozenset[ir.Block]:
        return self.loops.get(value, frozenset())

    def _give(self, op: ir.Op, needs: Needs) -> None:
        self.needs.update(dict.fromkeys(op.results, needs))

    def _all(self, values: Sequence[ir.Value]) -> Needs:
        return NONE.union(*(self.needs[v] for v in values))

    def _where_given(self, needs: Needs, given: Given) -> Needs:
        """What is still needed where ``given`` holds."""
        return frozenset(n for n in needs if not self._met(n, given)) if needs else NONE

    def _met(self, need: Need, given: Given) -> bool:
        return need.condition is not None and self.implications.implied(need.condition, given)

    def _under(self, needs: Needs, value: ir.Value, holds: bool) -> Needs:
        return (
            self._where_given(needs, self.implications.given([(value, holds)])) if needs else NONE
        )

    def _elementwise(self, op: ir.Op) -> None:
        self._give(op, self._all(op.args))

    def _both(self, op: ir.Op) -> None:
        """One side of `&` and `|` may decide by itself."""
        a, b = op.args
        decides = op.name == "and"
        if a.dtype.kind != "bool":
            self._elementwise(op)
            return
        first = self.needs[a] | self._under(self.needs[b], a, decides)
        second = self.needs[b] | self._under(self.needs[a], b, decides)
        self._give(op, min(first, second, key=len))

    def _where(self, op: ir.Op) -> None:
        cond, a, b = op.args
        chosen = self._under(self.needs[a], cond, True) | self._under(self.needs[b], cond, False)
        self._give(op, self.needs[cond] | chosen)

    def _view(self, op: ir.Op) -> None:
        self._give(op, moved(self.needs[op.args[0]], _VIEWS[op.name](op)))

    def _halved(self, op: ir.Op) -> None:
        axis, rank = op.attrs["axis"], op.args[0].type.rank
        places = [n if n != axis else None for n in range(rank)]
        self._give(op, moved(self._all(op.args), places))

    def _load(self, op: ir.Op) -> None:
        access = Access(op, (), ())
        needs, mask = self._all(access.indices), access.mask
        if mask is not None:
            needs = self._under(needs, mask, True) | self.needs[mask]
            if op.attrs["other"]:
                needs |= self._under(self.needs[op.args[-1]], mask, False)
            else:
                needs |= {Need(op, part) for part in self.implications.parts(mask)}
        self._give(op, needs)

    def _load_block(self, op: ir.Op) -> None:
        mask = op.args[2] if op.attrs["masked"] else None
        needs = self._all(op.args[:2])
        if mask is not None:
            needs = self._under(needs, mask, True) | self.needs[mask]
        self._give(op, needs)

    def _store(self, op: ir.Op) -> None:
        mask = op.args[-1] if op.attrs["masked"] else None
        held = [*self.branches, *([(mask, True)] if mask is not None else [])]
        values = op.args[:-1] if mask is not None else op.args
        self._require(op, values, held, self.domains.inside(op), "the store")
        if mask is not None:
            self._require(op, [mask], self.branches, (), "the mask of the store")

    def _require(
        self,
        op: ir.Op,
        values: Sequence[ir.Value],
        held: Sequence[tuple[ir.Value, bool]],
        facts: Sequence[Form],
        what: str,
    ) -> None:
        needs = self._all(values)
        if not needs:
            return
        for need in self._where_given(needs, self.implications.given(held, facts)):
            self.found.setdefault(need.load, (op, what))

    # across elements

    def _masked(self, op: ir.Op, value: ir.Value) -> Needs:
        needs = self.needs[value]
        if op.attrs["masked"]:
            needs = self._under(needs, op.args[-1], True) | self.needs[op.args[-1]]
        return moved(needs, _without(op.attrs["axis"], value.type.rank))

    def _reduce(self, op: ir.Op) -> None:
        self._give(op, self._masked(op, op.args[0]))

    def _accumulate(self, op: ir.Op) -> None:
        self._give(op, self.needs[op.args[0]] | self._masked(op, op.args[1]))

    def _finish(self, op: ir.Op) -> None:
        rank = op.args[0].type.rank
        self._give(op, moved(self.needs[op.args[0]], _without(rank - 1, rank)))

    def _dot(self, op: ir.Op) -> None:
        rows = moved(self.needs[op.args[0]], (0, None))
        columns = moved(self.needs[op.args[1]], (None, 1))
        self._give(op, rows | columns | self._all(op.args[2:]))

    # control

    def _for(self, op: ir.Op) -> None:
        self._require(op, op.args[:3], self.branches, (), "the bound of the loop")
        (block,) = op.blocks
        before = [self.needs[a] for a in op.args[3:]]
        self._enter(block)
        self.needs[block.params[0]] = NONE
        after = self._turns(block.params[1:], before, block, len(before))
        self.needs.update(zip(op.results, after, strict=True))

    def _enter(self, block: ir.Block) -> None:
        self.loops.update(dict.fromkeys(block.params, frozenset((*self.around, block))))

    def _turns(
        self, params: Sequence[ir.Value], before: Sequence[Needs], block: ir.Block, count: int
    ) -> list[Needs]:
        """Run ``block`` until its parameters need what it yields."""
        state = [b | r for b, r in zip(before, self._rest.get(block, before), strict=True)]
        while True:
            self.needs.update(zip(params, state, strict=True))
            self.around.append(block)
            self._block(block)
            self.around.pop()
            yields = [self._leaving(self.needs[v], block) for v in block.results[:count]]
            after = [s | y for s, y in zip(state, yields, strict=True)]
            if after == state:
                self._rest[block] = state
                return after
            state = after

    def _leaving(self, needs: Needs, block: ir.Block) -> Needs:
        """Needs outside of a loop: a condition of one turn says nothing there."""
        return frozenset(
            Need(n.load, None)
            if n.condition is not None and block in self._loops(n.condition.value)
            else n
            for n in needs
        )

    def _if(self, op: ir.Op) -> None:
        cond = op.args[0]
        self._require(op, [cond], self.branches, (), "the branch")
        sides: list[list[Needs]] = []
        for holds, block in zip((True, False), op.blocks, strict=True):
            self.branches.append((cond, holds))
            self._block(block)
            self.branches.pop()
            sides.append([self._under(self.needs[v], cond, holds) for v in block.results])
        for result, a, b in zip(op.results, *sides, strict=True):
            self.needs[result] = a | b

    def _walk(self, op: ir.Op) -> None:
        self._require(op, op.args[:1], self.branches, (), "the length of the walk")
        body, rule = op.blocks
        count = len(op.results)
        self._enter(body)
        self.needs.update(dict.fromkeys(body.params, NONE))
        self.around.append(body)
        self._block(body)
        self.around.pop()
        new = [self.needs[v] for v in body.results[:count]]
        for when in body.results[count:]:
            new = [self._under(n, when, True) | self.needs[when] for n in new]
        new = [self._leaving(n, body) for n in new]
        begin = [n | self.needs[e] for n, e in zip(new, op.args[1:], strict=True)]
        self._enter(rule)
        self.needs.update(zip(rule.params[count:], new, strict=True))
        after = self._turns(rule.params[:count], begin, rule, count)
        self.needs.update(zip(op.results, after, strict=True))

    def _nothing(self, op: ir.Op) -> None:
        """What is looked at reaches no result."""


def moved(needs: Needs, places: Places) -> Needs:
    """Needs of a tile as those of one whose axis ``places[n]`` is axis n of it."""
    return frozenset(_moved(n, places) for n in needs)


def _moved(need: Need, places: Places) -> Need:
    if need.condition is None:
        return need
    axes = tuple(None if a is None else places[a] for a in need.condition.axes)
    lost = any(a is not None and b is None for a, b in zip(need.condition.axes, axes, strict=True))
    condition = Condition(need.condition.value, need.condition.holds, axes)
    return Need(need.load, None if lost else condition)


def _without(axis: int, rank: int) -> Places:
    return [None if n == axis else n - (n > axis) for n in range(rank)]


def _broadcast(op: ir.Op) -> Places:
    offset = op.result.type.rank - op.args[0].type.rank
    return [n + offset for n in range(op.args[0].type.rank)]


def _expand(op: ir.Op) -> Places:
    return [n + (n >= op.attrs["axis"]) for n in range(op.args[0].type.rank)]


def _transpose(op: ir.Op) -> Places:
    return [op.attrs["perm"].index(n) for n in range(op.args[0].type.rank)]


def _reshape(op: ir.Op) -> Places:
    """Axes are kept where only extents of 1 come or go."""
    old, new = op.args[0].shape, op.result.shape
    wide = [n for n, extent in enumerate(new) if extent != 1]
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return [None] * len(old)
    rest = iter(wide)
    return [next(rest) if extent != 1 else None for extent in old]


_VIEWS: dict[str, Callable[[ir.Op], Places]] = {
    "broadcast": _broadcast,
    "expand": _expand,
    "transpose": _transpose,
    "reshape": _reshape,
}
_OPERATIONS: dict[str, Callable[[_Analysis, ir.Op], None]] = {
    **dict.fromkeys(("and", "or"), _Analysis._both),
    "where": _Analysis._where,
    **dict.fromkeys(_VIEWS, _Analysis._view),
    **dict.fromkeys(("split", "join"), _Analysis._halved),
    "load": _Analysis._load,
    "load_block": _Analysis._load_block,
    **dict.fromkeys(("store", "store_block"), _Analysis._store),
    "reduce": _Analysis._reduce,
    "accumulate": _Analysis._accumulate,
    "finish": _Analysis._finish,
    **dict.fromkeys(("dot", "dot_i8"), _Analysis._dot),
    "for": _Analysis._for,
    "if": _Analysis._if,
    "walk": _Analysis._walk,
    "breakpoint": _Analysis._nothing,
}
