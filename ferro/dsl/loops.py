"""Loops: ``range`` at run time with carried variables, ``tl.static_range`` unrolled."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from ferro.dsl import ast
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.ir import Value
from ferro.dsl.language import Builtin
from ferro.dsl.liveness import Names, assigned, live_at_turn
from ferro.dsl.objects import POISON, Object, Poisoned, Undefined
from ferro.dsl.statements import Statements
from ferro.dsl.static import Static

UNROLL_LIMIT = 4096

_INSIDE_LOOP = Undefined("is defined only inside of the loop", "give it a value before the loop")


class Loops(Statements):
    """Reads ``for`` statements. Walks over chunks are left to a subclass."""

    def _do_for(self, node: ast.For, live: Names) -> None:
        call = node.iterable
        function = self.eval(call.function) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or not isinstance(function, Builtin):
            self._bad_loop(node)
        args, keywords = self._arguments(call)
        self.builder.span = call.span
        if keywords:
            self.fail("FER126", f"`{function.signature}` takes no keywords", help="give positions")
        if function.name == "range":
            self._range(node, args, live)
        elif function.name == "static_range":
            self._static_range(node, args, live)
        elif function.name == "chunks":
            self._chunks(node, args, live)
        else:
            self._bad_loop(node)

    def _bad_loop(self, node: ast.For) -> NoReturn:
        self.fail(
            "FER145",
            "kernels loop over `range`, `tl.static_range` or `tl.chunks`",
            span=node.iterable.span,
            help="`for i in range(start, stop, step)`",
        )

    def _bounds(self, args: Sequence[Object], what: str) -> tuple[Object, Object, Object]:
        if not 1 <= len(args) <= 3:
            self.fail(
                "FER126",
                f"`{what}` takes one to three bounds",
                help=f"`{what}(stop)`, `{what}(start, stop)` or `{what}(start, stop, step)`",
            )
        start, stop = (Static(0), args[0]) if len(args) == 1 else (args[0], args[1])
        step = args[2] if len(args) == 3 else Static(1)
        return start, stop, step

    def _range(self, node: ast.For, args: Sequence[Object], live: Names) -> None:
        start, stop, step = self._bounds(args, "range")
        if int(self.static_int(step, "the step of a range").value) < 1:
            self.fail("FER146", f"the step of a range is {step!r}", help="it must be positive")
        turn = live_at_turn(node, live)
        before = dict(self.variables)
        carried = self._carried_names(node, turn, before)
        init = [self._carried(n, before[n]) for n in carried]
        bad: set[str] = set()

        def body(counter: Value, current: tuple[Value, ...]) -> list[Value]:
            self.bind(node.target.id, counter)
            self.variables.update(zip(carried, current, strict=True))
            self._run_nested(node.body, turn)
            ends = zip(carried, current, strict=True)
            return [self._turn_end(node, n, v, bad) for n, v in ends]

        first, last, width = (self.operand(b) for b in (start, stop, step))
        results = self.builder.for_(first, last, width, init, body, carried)
        self.frame.variables = before
        self._after_loop(node, before)
        for name, value in zip(carried, results, strict=True):
            self.bind(name, value)
        self.poison(bad)

    def _carried_names(self, node: ast.For, turn: Names, before: dict[str, Object]) -> list[str]:
        names = [n for n in assigned(node.body) if n in before and n in turn]
        return [
            n for n in names if before[n] is not POISON and not isinstance(before[n], Undefined)
        ]

    def _turn_end(self, node: ast.For, name: str, current: Value, bad: set[str]) -> Value:
        """What a carried variable is after one turn; an error is reported and poisons it."""
        thing = self.variables[name]
        try:
            self.builder.span = assigned(node.body)[name].span
            if thing is POISON:
                raise Poisoned
            if isinstance(thing, Undefined):
                self.fail("FER112", f"`{name}` {thing.reason}", help=thing.help)
            value = self._carried(name, thing, [current.dtype])
            if value.type != current.type:
                self.fail(
                    "FER401",
                    f"`{name}` changes its type in the loop",
                    f"before: {current.type!r}",
                    f"after one turn: {value.type!r}",
                    help="give it its final shape and dtype before the loop (`tl.zeros`)",
                )
            return value
        except CompileError as error:
            self.report(error)
        except Poisoned:
            pass
        bad.add(name)
        return current

    def _after_loop(self, node: ast.For, before: dict[str, Object]) -> None:
        for name in (*assigned(node.body), node.target.id):
            if name not in before or before[name] is not POISON:
                self.variables[name] = _INSIDE_LOOP

    def _static_range(self, node: ast.For, args: Sequence[Object], live: Names) -> None:
        bounds = [
            self.static_int(b, "a bound of `tl.static_range`")
            for b in self._bounds(args, "tl.static_range")
        ]
        if any(b.schedule for b in bounds):
            self.fail(
                "FER501",
                "a schedule constexpr decides how often a loop is unrolled",
                help="use `range`, or a `tl.const`",
            )
        start, stop, step = (int(b.value) for b in bounds)
        if step == 0 or -((start - stop) // step) > UNROLL_LIMIT:
            self.fail(
                "FER147",
                f"`tl.static_range({start}, {stop}, {step})` cannot be unrolled",
                help=f"at most {UNROLL_LIMIT} turns; use `range` for more",
            )
        turn = live_at_turn(node, live)
        for number in range(start, stop, step):
            self.variables[node.target.id] = Static(number)
            self.run(node.body, turn)

    @abstractmethod
    def _chunks(self, node: ast.For, args: Sequence[Object], live: Names) -> None:
        """An ordered walk."""
