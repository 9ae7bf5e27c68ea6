"""Reductions for the schedule check: along which axes, and what a loop over tiles may carry.

Along an axis that no schedule constexpr sizes any reduction is clean. Along a coordinate a result
covers one tile only; it becomes clean where a loop merges it into a carried value in a way that
does not depend on the grouping: max and min, integer sums, partials, a product's accumulator.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ferro.dsl import ir
from ferro.dsl.domains import Domains
from ferro.dsl.padding import Number, Padding
from ferro.dsl.tiles import (
    FIXED,
    ORDERED,
    SINGLE,
    Axis,
    Coordinate,
    Problem,
    State,
    join_axes,
    settled,
)

_MERGES = {"max": "max", "min": "min", "add": "sum"}
_PADDING = (
    "mask the loads by the loop's end and pad one operand with `other=0.0`, the other with"
    " `other=-0.0`: padding then adds nothing"
)


class Reductions:
    def __init__(
        self,
        kernel: ir.Kernel,
        domains: Domains,
        padding: Padding,
        states: Mapping[ir.Value, State],
    ) -> None:
        self.defined = domains.defined
        self.domains = domains
        self.padding = padding
        self.states = states
        self.uses = _uses(kernel.body)
        self.initial: Number | None = None

    def _settled(self, op: ir.Op, values: Sequence[ir.Value]) -> list[State]:
        return [settled(self.states[v], op.span) for v in values]

    # one operation

    def reduce(self, op: ir.Op, args: Sequence[State]) -> State:
        axes, problem = join_axes(args, op.span)
        axis, kind = op.attrs["axis"], op.attrs["kind"]
        rest = axes[:axis] + axes[axis + 1 :]
        if problem is None and axes[axis] not in (FIXED, SINGLE) and kind != "argmax":
            exempt = kind in ("max", "min") and not isinstance(axes[axis], Coordinate)
            problem = None if exempt else self._over_tile(op, kind)
        elif problem is None and isinstance(axes[axis], Coordinate):
            problem = self._over_tile(op, kind)
        return State(rest, problem=problem)

    def accumulate(self, op: ir.Op, args: Sequence[State]) -> State:
        axis = op.attrs["axis"]
        axes, problem = join_axes(args[1:], op.span)
        summed = axes[axis]
        prefix, other = join_axes(
            [State(axes[:axis] + axes[axis + 1 :]), State(args[0].axes[:-1])], op.span
        )
        problem = args[0].problem or problem or other
        if problem is None and summed not in (FIXED, SINGLE):
            problem = self._over_tile(op, "accumulate")
        return State((*prefix, FIXED), problem=problem)

    def dot(self, op: ir.Op, args: Sequence[State]) -> State:
        axes, problem = self._product(op, args)
        contracted, other = self._contracted(op)
        problem = problem or other
        if problem is None and contracted not in (FIXED, SINGLE):
            problem = self._over_tile(op, op.name)
        return State(axes, problem=problem)

    def _product(self, op: ir.Op, args: Sequence[State]) -> tuple[tuple[Axis, ...], Problem | None]:
        problem = next((s.problem for s in args if s.problem is not None), None)
        axes: tuple[Axis, ...] = (args[0].axes[0], args[1].axes[1])
        if len(args) > 2:
            axes, other = join_axes([State(axes), State(args[2].axes)], op.span)
            problem = problem or other
        return axes, problem

    def _contracted(self, op: ir.Op) -> tuple[Axis, Problem | None]:
        a, b = self._settled(op, op.args[:2])
        axes, problem = join_axes([State(a.axes[1:]), State(b.axes[:1])], op.span)
        return axes[0], problem

    def _over_tile(self, op: ir.Op, kind: str) -> Problem:
        if kind == "sum" and op.result.dtype.is_float:
            return Problem(
                "FER511",
                op.span,
                "a float sum over a tile whose extent is a schedule constexpr: its"
                " bits depend on the tile size",
                ORDERED,
            )
        help = {
            "max": "merge it into a carried value: `top = tl.maximum(top, tl.max(v))`",
            "min": "merge it into a carried value: `low = tl.minimum(low, tl.min(v))`",
            "dot": f"carry its accumulator through the loop: `acc = tl.dot(a, b, acc)`; {_PADDING}",
        }.get(kind, ORDERED)
        return Problem(
            "FER511",
            op.span,
            f"`tl.{kind}` over a tile whose extent is a schedule constexpr covers that tile alone",
            help,
        )

    # what a loop over tiles carries

    def carried(self, loop: ir.Op, number: int, state: State) -> State:
        """The state of carried value ``number`` after a loop that steps by a tile size."""
        (block,) = loop.blocks
        param, result = block.params[1 + number], block.results[number]
        if result is param:
            return state
        chain = self._chain(result, param)
        self.initial = self.padding.constant(loop.args[3 + number])
        problem = self._unordered(loop, chain, param, result)
        if problem is None and self._varies(loop, state):
            problem = self._order(loop, param, "keeps an element of every tile")
        if problem is not None or chain is None:
            return replace(state, problem=problem)
        return State(self._axes_after(chain[-1], state))

    def _chain(self, value: ir.Value, param: ir.Value) -> list[ir.Op] | None:
        """The operations that merge something into ``param`` to give ``value``."""
        if value is param:
            return []
        op = self.defined.op.get(value)
        if op is None:
            return None
        places = {"accumulate": (0,), "dot": (2,), "max": (0, 1), "min": (0, 1), "add": (0, 1)}
        for place in places.get(op.name, ()):
            before = self._chain(op.args[place], param)
            if before is not None:
                return [*before, op]
        return None

    def _axes_after(self, op: ir.Op, state: State) -> tuple[Axis, ...]:
        if op.name == "dot":
            args = self._settled(op, op.args[:2])
            axes, _ = self._product(op, [*args, State(state.axes)])
            return axes
        return state.axes

    def _unordered(
        self, loop: ir.Op, chain: list[ir.Op] | None, param: ir.Value, result: ir.Value
    ) -> Problem | None:
        """Why the carried value depends on how the loop is cut into tiles; None if it does not."""
        if chain is None:
            known = self.states[result].problem
            return known or self._order(loop, param, "is carried by a loop over tiles")
        names = {op.name for op in chain}
        once = all(self.uses[v] == 1 for v in (param, *(op.result for op in chain)))
        single = len(chain) == 1 or names <= {"max"} or names <= {"min"} or names <= {"add"}
        if not once or not single:
            return self._order(loop, param, "is used before the loop has merged every tile")
        for op in chain:
            problem = self._link(loop, op, chain)
            if problem is not None:
                return problem
        return None

    def _order(self, loop: ir.Op, param: ir.Value, what: str) -> Problem:
        (block,) = loop.blocks
        made = self.defined.op.get(block.results[block.params.index(param) - 1])
        span = made.span if made is not None and made in block.ops else loop.span
        name = f"`{param.name}`" if param.name else "a value"
        return Problem("FER514", span, f"{name} {what}", ORDERED)

    def _link(self, loop: ir.Op, op: ir.Op, chain: list[ir.Op]) -> Problem | None:
        if op.name == "accumulate":
            return self._accumulated(loop, op)
        if op.name == "dot":
            return self._contracts(loop, op, floats=True)
        merged = self._merged(op, chain)
        made = self.defined.op.get(merged)
        (state,) = self._settled(op, [merged])
        if state.clean and op.name in ("max", "min"):
            # An operand that is the same in every turn, or one element a carried element.
            return None if not self._varies(loop, state) else self._tile_problem(op, state)
        if made is not None and made.name == "dot_i8" and op.name == "add":
            return self._contracts(loop, made, floats=False)
        if made is None or made.name != "reduce" or made.attrs["kind"] != _MERGES[op.name]:
            return state.problem or self._tile_problem(op, state)
        if op.name == "add" and op.result.dtype.is_float:
            return self._over_tile(made, "sum")
        return self._reduced(loop, made)

    def _tile_problem(self, op: ir.Op, state: State) -> Problem:
        return state.problem or Problem(
            "FER514",
            op.span,
            "this adds up once a tile, and the number of tiles depends on the tile size",
            ORDERED,
        )

    def _varies(self, loop: ir.Op, state: State) -> bool:
        return any(c.origin is loop.blocks[0].params[0] for c in state.coordinates)

    def _merged(self, op: ir.Op, chain: list[ir.Op]) -> ir.Value:
        a, b = op.args
        before = {o.result for o in chain}
        carried = a in before or self.defined.parameter.get(a) is not None
        return b if carried else a

    def _own(self, loop: ir.Op, axis: Axis) -> Coordinate | None:
        """The coordinate, if it is the one of ``loop``."""
        mine = isinstance(axis, Coordinate) and axis.origin is loop.blocks[0].params[0]
        return axis if mine and isinstance(axis, Coordinate) else None

    def _reduced(self, loop: ir.Op, op: ir.Op) -> Problem | None:
        axes, problem = join_axes(self._settled(op, op.args), op.span)
        axis, kind = op.attrs["axis"], op.attrs["kind"]
        coordinate = self._own(loop, axes[axis])
        if problem is not None or coordinate is None:
            return problem or self._over_tile(op, kind)
        if self._cut(op, op.args[0], axis, coordinate, lambda n: self._adds_nothing(kind, n)):
            return None
        return self._ragged(op, coordinate)

    def _adds_nothing(self, kind: str, number: Number) -> bool:
        """True if merging ``number`` once more into the carried value leaves it alone."""
        if kind == "sum":
            return number == 0
        limit = self.initial if self.initial is not None else -math.inf
        if kind == "min":
            limit = self.initial if self.initial is not None else math.inf
            return number > limit or repr(number) == repr(limit)
        return number < limit or repr(number) == repr(limit)

    def _accumulated(self, loop: ir.Op, op: ir.Op) -> Problem | None:
        axes, problem = join_axes(self._settled(op, op.args[1:]), op.span)
        axis = op.attrs["axis"]
        coordinate = self._own(loop, axes[axis])
        if problem is not None or coordinate is None:
            return problem or self._over_tile(op, "accumulate")
        if self._cut(op, op.args[1], axis, coordinate, lambda n: n == 0):
            return None
        return self._ragged(op, coordinate)

    def _cut(
        self,
        op: ir.Op,
        x: ir.Value,
        axis: int,
        coordinate: Coordinate,
        harmless: Callable[[Number], bool],
    ) -> bool:
        """True if what is past the end is masked off, not there, or a number that is harmless."""
        if op.attrs["masked"] and self.domains.masked(op.args[-1], axis, coordinate):
            return True
        if self.domains.ends(coordinate, axis, []):
            return True
        number = self.padding.outside(x, axis, coordinate)
        return number is not None and bool(harmless(number))

    def _ragged(self, op: ir.Op, coordinate: Coordinate) -> Problem:
        end = self.domains.end_text(coordinate)
        masked = (
            f"add `& ({end})` to the mask of the reduction"
            if op.attrs.get("masked")
            else f"give the reduction the mask `{end}`"
        )
        loaded = f"mask one of the loads with `{end}` and `other=0`"
        return Problem(
            "FER515",
            op.span,
            "the last tile is reduced without a mask at its end: how far it"
            " reaches depends on the tile size",
            loaded if op.name == "dot_i8" else masked,
        )

    def _contracts(self, loop: ir.Op, op: ir.Op, floats: bool) -> Problem | None:
        axis, problem = self._contracted(op)
        whole = self._settled(op, op.args[:2])
        problem = problem or next((s.problem for s in whole if s.problem is not None), None)
        coordinate = self._own(loop, axis)
        if problem is not None or coordinate is None:
            return problem or self._over_tile(op, op.name)
        if self.domains.ends(coordinate, 1, []):
            return None
        a = self.padding.outside(op.args[0], 1, coordinate)
        b = self.padding.outside(op.args[1], 0, coordinate)
        if not floats:
            return None if 0 in (a, b) else self._ragged(op, coordinate)
        if a == b == 0 and math.copysign(1, a) != math.copysign(1, b):
            return None
        return Problem(
            "FER518",
            op.span,
            "the last tile of this product is padded, and its padding may show"
            " (0.0 added to -0.0 gives 0.0)",
            f"{_PADDING}; or add 0.0 to the carried product after the loop",
            sign=a == b == 0,
        )


def _uses(body: ir.Block) -> Counter[ir.Value]:
    found: Counter[ir.Value] = Counter(body.results)
    for op in ir.walk(body):
        if op.name != "breakpoint":
            found.update(op.args)
        for block in op.blocks:
            found.update(block.results)
    return found
