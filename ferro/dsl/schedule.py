"""The proof that no schedule constexpr reaches a value: "one meaning, to the bit".

One pass gives each value a ``tiles.State``. Stores, conditions and loop bounds must be clean, and
what a tile size makes ragged (the last tile) must be masked off before it is stored or reduced.
``reductions.py`` judges what loops over tiles may carry. docs/design-notes/schedule-taint.md tells
what the front end marks. Index arithmetic is taken not to wrap: ``bounds.py`` proves that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ferro.dsl import extents, ir
from ferro.dsl.definitions import induction
from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.domains import Domains
from ferro.dsl.hazards import hazards
from ferro.dsl.padding import Padding
from ferro.dsl.reductions import Reductions
from ferro.dsl.tile_views import VIEWS, halved
from ferro.dsl.tiles import (
    FIXED,
    TOGETHER,
    UNIFORM,
    Part,
    Problem,
    State,
    added,
    broken,
    fixed,
    join_axes,
    joined,
    pending,
    scaled,
    settled,
)
from ferro.dsl.types import NOWHERE, Span

_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
_WALK_LENGTH = (
    "walk to a bound that is the same for every tile (a dimension, or `longest: tl.i32`) and let"
    " `when=c.start < length` of `tl.combine` skip the chunks that a row does not have"
)
NOTHING: Mapping[ir.Value, State] = MappingProxyType({})


def check(kernel: ir.Kernel, domains: Domains) -> list[Diagnostic]:
    """Every way in which a schedule constexpr of ``kernel`` may reach a value, as errors."""
    if not kernel.schedule:
        return []
    return _Analysis(kernel, domains).findings()


class _Analysis:
    def __init__(self, kernel: ir.Kernel, domains: Domains) -> None:
        self.kernel = kernel
        self.defined = domains.defined
        self.domains = domains
        self.states: dict[ir.Value, State] = {s.value: State() for s in kernel.scalars}
        self.padding = Padding(self.domains)
        self.reductions = Reductions(kernel, self.domains, self.padding, self.states)
        self.found: dict[tuple[str, Span, str], Diagnostic] = {}
        self._rest: dict[ir.Block, list[State]] = {}

    def findings(self) -> list[Diagnostic]:
        self._block(self.kernel.body)
        for problem in hazards(self.kernel, self.domains, self.states):
            self._report(problem)
        return list(self.found.values())

    def _report(self, problem: Problem) -> None:
        names = ", ".join(sorted(self.kernel.schedule))
        diagnostic = Diagnostic(
            problem.code,
            problem.span,
            problem.message,
            problem.help,
            (f"schedule constexprs of `{self.kernel.name}`: {names}; they may change speed only",),
        )
        self.found.setdefault((problem.code, problem.span, problem.message), diagnostic)

    def _demand(self, state: State, span: Span) -> bool:
        """Report a value that is not clean where one is needed."""
        if not state.clean:
            self._report(pending(state, span))
        return state.clean

    def _block(self, block: ir.Block) -> None:
        for op in block.ops:
            handler = _OPERATIONS.get(op.name, _Analysis._elementwise)
            handler(self, op)

    def _settled(self, values: Sequence[ir.Value], span: Span) -> list[State]:
        return [settled(self.states[v], span) for v in values]

    # sources

    def _const(self, op: ir.Op) -> None:
        value = op.result
        if "schedule" not in op.attrs:
            self.states[value] = State()
        elif value.dtype.is_int:
            part = Part("size", value, int(op.attrs["value"]))
            self.states[value] = State((), ((part, 1),), pure=True)
        else:
            self.states[value] = broken(
                Problem(
                    "FER510", op.span, f"a schedule constexpr becomes a {value.dtype}", TOGETHER
                ),
                0,
            )

    def _scalar(self, op: ir.Op) -> None:
        self.states[op.result] = State()

    def _program_id(self, op: ir.Op) -> None:
        count = self.kernel.grid[op.attrs["axis"]]
        state = State()
        if extents.from_schedule(count):
            state = _alone(self.domains.programs(self.defined.same(op.result), count))
        self.states[op.result] = state

    def _arange(self, op: ir.Op) -> None:
        size, start = op.attrs["size"], op.attrs["start"]
        if "schedule" not in op.attrs:
            self.states[op.result] = State((fixed(size),))
            return
        parts = [(Part("offset", self.defined.same(op.result), size, 0), 1)]
        if start:  # which of the two bounds derives is not known
            parts.append((Part("size", op.result, start), 1))
        self.states[op.result] = State((UNIFORM,), tuple(parts), pure=not start)

    def _partials(self, op: ir.Op) -> None:
        self.states[op.result] = State((*(UNIFORM,) * (op.result.type.rank - 1), FIXED))

    def _shape(self, op: ir.Op) -> None:
        self.states[op.result] = VIEWS[op.name](op, self.states[op.args[0]])

    def _halved(self, op: ir.Op) -> None:
        state = halved(op, self._settled(op.args, op.span))
        self._give(op.results, [state] * len(op.results))

    # elementwise

    def _elementwise(self, op: ir.Op) -> None:
        state = joined(self._settled(op.args, op.span), op.span)
        self._give(op.results, [state] * len(op.results))

    def _sum(self, op: ir.Op) -> None:
        a, b = (self.states[v] for v in op.args)
        if not op.result.dtype.is_int or not (a.tiles or b.tiles):
            self._elementwise(op)
            self._give_one_zero(op)
            return
        sign = -1 if op.name == "sub" else 1
        self.states[op.result] = added(a, scaled(b, sign), op.span)

    def _give_one_zero(self, op: ir.Op) -> None:
        """A carried product plus 0.0: where padding may have made -0.0 to 0.0, both give 0.0."""
        for x, y in (op.args, op.args[::-1]):
            problem, made = self.states[x].problem, self.defined.op.get(x)
            looped = (
                problem is not None and problem.sign and made is not None and made.name == "for"
            )
            if looped and op.name == "add" and repr(self.padding.constant(y)) == "0.0":
                self.states[op.result] = State(self.states[x].axes)

    def _divide(self, op: ir.Op) -> None:
        """A program's number taken apart into numbers of tiles along two extents."""
        state = self.states[op.args[0]]
        part = state.tiles[0][0] if len(state.tiles) == 1 and state.pure else None
        if part is not None and part.kind == "count" and part.value is not None:
            count = self.domains.factor(op, part.value)
            if count is not None and state.tiles[0][1] == 1:
                clean = not extents.from_schedule(count)
                origin = self.defined.same(op.result)
                self.states[op.result] = (
                    State() if clean else _alone(self.domains.programs(origin, count))
                )
                return
        self._elementwise(op)

    def _compare(self, op: ir.Op) -> None:
        a, b = (self.states[v] for v in op.args)
        if not op.args[0].dtype.is_int or not (a.tiles and b.tiles):
            self._elementwise(op)
            return
        self.states[op.result] = settled(added(a, scaled(b, -1), op.span), op.span)

    def _neg(self, op: ir.Op) -> None:
        state = self.states[op.args[0]]
        if state.tiles and state.problem is None:
            self.states[op.result] = scaled(state, -1)
        else:
            self._elementwise(op)

    def _mul(self, op: ir.Op) -> None:
        for x, y in (op.args, op.args[::-1]):
            state, factor = self.states[x], self._factor(y, self.states[x])
            if state.tiles and state.problem is None and factor is not None:
                axes, problem = join_axes([state, State(self.states[y].axes)], op.span)
                self.states[op.result] = State(
                    axes, scaled(state, factor).tiles, state.pure, problem
                )
                return
        self._elementwise(op)

    def _factor(self, value: ir.Value, other: State) -> int | None:
        """The number that ``value`` is, if ``other`` times it can still be part of a coordinate."""
        state = self.states[value]
        if state.clean:
            return self.domains.number(value)
        if len(state.tiles) != 1 or not state.pure or not other.pure:
            return None
        if any(part.kind not in ("count", "loop") for part, _ in other.tiles):
            return None  # an offset that a tile size scales would be a value of its own
        part, factor = state.tiles[0]
        return part.size * factor or None if part.kind == "size" else None

    # memory and reductions

    def _load_block(self, op: ir.Op) -> None:
        axes, problem = join_axes(self._settled(op.args, op.span), op.span)
        q, *numbers = op.results
        self.states[q] = State((*axes, FIXED), problem=problem)
        for number in numbers:
            self.states[number] = State(axes, problem=problem)

    def _store(self, op: ir.Op) -> None:
        axes, problem = join_axes(self._settled(op.args, op.span), op.span)
        problem = problem or self.domains.stored(op, axes)
        if problem is not None:
            self._report(problem)

    def _reduce(self, op: ir.Op) -> None:
        self.states[op.result] = self.reductions.reduce(op, self._settled(op.args, op.span))

    def _accumulate(self, op: ir.Op) -> None:
        self.states[op.result] = self.reductions.accumulate(op, self._settled(op.args, op.span))

    def _finish(self, op: ir.Op) -> None:
        (state,) = self._settled(op.args, op.span)
        self.states[op.result] = State(state.axes[:-1], problem=state.problem)

    def _dot(self, op: ir.Op) -> None:
        self.states[op.result] = self.reductions.dot(op, self._settled(op.args, op.span))

    def _breakpoint(self, op: ir.Op) -> None:
        """What is looked at reaches no result."""

    # control

    def _for(self, op: ir.Op) -> None:
        (block,) = op.blocks
        counter, *carried = block.params
        part = self._tiled(op)
        self.states[counter] = State() if part is None else _alone(part)
        grown = {p: g for p in carried if (g := self._grown(p)) is not None}
        before = self._settled(op.args[3:], op.span)
        after = self._turns(carried, before, block, grown)
        if part is not None:
            after = [self.reductions.carried(op, n, state) for n, state in enumerate(after)]
        self._give(op.results, after)

    def _tiled(self, op: ir.Op) -> Part | None:
        """The part that the counter of a loop over tiles is; None for another loop."""
        self._demand(self.states[op.args[0]], op.span)
        step = self.states[op.args[2]]
        if len(step.tiles) == 1 and step.tiles[0][0].kind == "size":
            self._demand(self.states[op.args[1]], op.span)
            return self.domains.steps(op)
        found = None if self.states[op.args[1]].clean else self.domains.turns(op)
        if found is not None and (found[1] is None or self.states[found[1]].clean):
            return found[0]
        self._demand(self.states[op.args[1]], op.span)
        self._demand(step, op.span)
        return None

    def _grown(self, param: ir.Value) -> State | None:
        """The state of a carried index that grows by a constant: it follows the counter."""
        growth = induction(self.defined, param)
        if growth is None:
            return None
        counter = self.states[growth.loop.blocks[0].params[0]]
        step = self.domains.number(growth.loop.args[2])
        if step is None or step < 1 or growth.pace % step:
            return None
        if "schedule" in growth.constant.attrs and not counter.tiles:
            return None
        passed = scaled(counter, growth.pace // step)
        initial = self.states[growth.initial]
        wide = State((UNIFORM,) * len(initial.axes), passed.tiles, passed.pure)
        return added(initial, wide, growth.loop.span)

    def _turns(
        self,
        params: Sequence[ir.Value],
        before: list[State],
        block: ir.Block,
        grown: Mapping[ir.Value, State] = NOTHING,
    ) -> list[State]:
        """Run ``block`` until its parameters have the axes of what it yields; the states of those
        in ``grown`` are known."""
        known = self._rest.get(block)
        if known is None:
            states = [grown.get(p, s) for p, s in zip(params, before, strict=True)]
        else:  # in a loop: goes on from where it came to rest before
            states = [
                grown.get(p, State(join_axes([s, k], _end(block))[0]))
                for p, s, k in zip(params, before, known, strict=True)
            ]
        while True:
            self._give(params, states)
            self._block(block)
            yields = self._settled(block.results[: len(params)], _end(block))
            # An axis only ever becomes something else than uniform, so this comes to rest.
            after = [
                joined([start, State(held.axes), end], _end(block))
                for start, held, end in zip(before, states, yields, strict=True)
            ]
            same = [
                a.axes == s.axes or p in grown
                for a, s, p in zip(after, states, params, strict=True)
            ]
            if all(same):
                self._rest[block] = [State(s.axes) for s in states]
                return after
            states = [grown.get(p, State(a.axes)) for p, a in zip(params, after, strict=True)]

    def _give(self, values: Sequence[ir.Value], states: Sequence[State]) -> None:
        self.states.update(zip(values, states, strict=True))

    def _if(self, op: ir.Op) -> None:
        self._demand(self.states[op.args[0]], op.span)
        sides = []
        for block in op.blocks:
            self._block(block)
            sides.append(self._settled(block.results, op.span))
        for n, result in enumerate(op.results):
            self.states[result] = joined([s[n] for s in sides], op.span)

    def _walk(self, op: ir.Op) -> None:
        if "schedule" in op.attrs:
            self._report(
                Problem(
                    "FER516",
                    op.span,
                    "the chunk size of an ordered walk derives from a schedule constexpr",
                    "give `tl.chunks` a number or a tl.const: it decides the order of the sum",
                )
            )
        length = self.states[op.args[0]]
        if length.problem is not None and length.problem.code == "FER511":
            length = replace(length, problem=replace(length.problem, help=_WALK_LENGTH))
        self._demand(length, op.span)
        body, rule = op.blocks
        self._give(body.params, [State(), State()])
        self._block(body)
        count = len(op.results)
        new = self._settled(body.results[:count], op.span)
        whens = self._settled(body.results[count:], op.span)
        empty = self._settled(op.args[1:], op.span)
        self._give(rule.params[count:], new)
        begin = [
            joined([*pair, *_widened(whens, pair[0])], op.span)
            for pair in zip(new, empty, strict=True)
        ]
        self._give(op.results, self._turns(rule.params[:count], begin, rule))


def _alone(part: Part) -> State:
    return State((), ((part, 1),), pure=True)


def _widened(whens: list[State], like: State) -> list[State]:
    """``when`` covers the leading axes of a value."""
    rank = len(like.axes)
    return [State((*w.axes, *(UNIFORM,) * (rank - len(w.axes))), problem=w.problem) for w in whens]


def _end(block: ir.Block) -> Span:
    return block.ops[-1].span if block.ops else NOWHERE


_OPERATIONS: dict[str, Callable[[_Analysis, ir.Op], None]] = {
    "const": _Analysis._const,
    "scalar": _Analysis._scalar,
    "program_id": _Analysis._program_id,
    "arange": _Analysis._arange,
    "partials": _Analysis._partials,
    **dict.fromkeys(VIEWS, _Analysis._shape),
    **dict.fromkeys(("split", "join"), _Analysis._halved),
    "add": _Analysis._sum,
    "sub": _Analysis._sum,
    "neg": _Analysis._neg,
    "div": _Analysis._divide,
    "mod": _Analysis._divide,
    "mul": _Analysis._mul,
    **dict.fromkeys(_COMPARISONS, _Analysis._compare),
    "load_block": _Analysis._load_block,
    "store": _Analysis._store,
    "store_block": _Analysis._store,
    "reduce": _Analysis._reduce,
    "accumulate": _Analysis._accumulate,
    "finish": _Analysis._finish,
    "dot": _Analysis._dot,
    "dot_i8": _Analysis._dot,
    "breakpoint": _Analysis._breakpoint,
    "for": _Analysis._for,
    "if": _Analysis._if,
    "walk": _Analysis._walk,
}
