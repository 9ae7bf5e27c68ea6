"""Ordered walks: ``for c in tl.chunks(n, SIZE)`` closed by ``tl.combine``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferro.dsl import ast
from ferro.dsl.ir import Value
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.language import BUILTINS, Builtin
from ferro.dsl.liveness import Names, assigned, live_before
from ferro.dsl.loops import Loops
from ferro.dsl.objects import Chunk, Object, kind
from ferro.dsl.static import Static
from ferro.dsl.types import Span

_RULES = {"add": "add", "maximum": "max", "minimum": "min"}


@dataclass(frozen=True)
class Combine:
    """The closing statement of a walk, taken apart."""

    span: Span
    rule: ast.Expr
    values: tuple[ast.Expr, ...]
    when: ast.Expr | None
    empty: ast.Expr | None
    targets: tuple[ast.Name, ...]


class Walks(Loops):
    """Reads ``tl.chunks`` loops: the body of each chunk is independent of the others."""

    def _chunks(self, node: ast.For, args: Sequence[Object], live: Names) -> None:
        if len(args) != 2:
            self.fail(
                "FER126",
                "`tl.chunks` takes a length and a size",
                help="`for c in tl.chunks(n, 4096)`",
            )
        size = self.static_int(args[1], "the size of chunks")
        if int(size.value) < 1:
            self.fail("FER146", f"the size of chunks is {size!r}", help="it must be positive")
        combine = self._combine_of(node)
        self._check_independent(node, live)
        rule, empty = self._rule_of(combine), self._empty_of(combine)
        before = dict(self.variables)

        def body(start: Value, stop: Value) -> tuple[list[Value], Value | None]:
            start.name, stop.name = f"{node.target.id}.start", f"{node.target.id}.stop"
            self.variables[node.target.id] = Chunk(start, stop)
            self._run_nested(node.body[:-1], live_before(node.body[-1:], live))
            values = [self.value(self.eval(v)) for v in combine.values]
            when = self.value(self.eval(combine.when)) if combine.when is not None else None
            self.builder.span = combine.span
            return values, when

        def merge(old: Sequence[Value], new: Sequence[Value]) -> list[Value]:
            return self._apply(combine, rule, old, new)

        names = [t.id for t in combine.targets]
        results = self.builder.walk(self.operand(args[0]), size, body, merge, empty, names)
        self.frame.variables = before
        self._after_loop(node, before)
        for name, value in zip(names, results, strict=True):
            self.bind(name, value)

    def _combine_of(self, node: ast.For) -> Combine:
        last = node.body[-1]
        call = last.value if isinstance(last, (ast.Assign, ast.Expression)) else None
        if not isinstance(call, ast.Call) or not self._is_combine(call.function):
            self.fail(
                "FER410",
                "a walk does not end in `tl.combine`",
                span=last.span,
                help="close the body with `total = tl.combine(tl.add, value)`",
            )
        options = {k.name: k.value for k in call.keywords}
        unknown = [n for n in options if n not in ("when", "empty")]
        if unknown or len(call.args) < 2:
            self.fail(
                "FER126",
                "wrong arguments for `tl.combine`",
                span=call.span,
                help=f"the call is `{BUILTINS['combine'].signature}`",
            )
        targets = last.targets if isinstance(last, ast.Assign) else ()
        if len(targets) != len(call.args) - 1:
            self.fail(
                "FER141",
                f"{len(targets)} variables for {len(call.args) - 1} combined values",
                span=last.span,
                help="assign every combined value to a variable",
            )
        return Combine(
            call.span,
            call.args[0],
            call.args[1:],
            options.get("when"),
            options.get("empty"),
            targets,
        )

    def _is_combine(self, function: ast.Expr) -> bool:
        return isinstance(function, (ast.Name, ast.Attribute)) and (
            self.eval(function) is BUILTINS["combine"]
        )

    def _check_independent(self, node: ast.For, live: Names) -> None:
        inner = node.body[:-1]
        combined = frozenset(assigned(node.body[-1:]))
        needed = live_before(node.body, frozenset()) | (live - combined)
        for name, place in assigned(inner).items():
            if name in self.variables and name in needed:
                self.fail(
                    "FER411",
                    f"`{name}` is carried from chunk to chunk",
                    span=place.span,
                    help="the chunks of a walk are independent: start it inside of the body "
                    "and pass it to `tl.combine`",
                )

    def _rule_of(self, combine: Combine) -> Builtin | KernelDefinition:
        rule = self.eval(combine.rule)
        known = isinstance(rule, Builtin) and rule.name in _RULES
        if isinstance(rule, (Builtin, KernelDefinition)) and (
            known or isinstance(rule, KernelDefinition)
        ):
            return rule
        self.fail(
            "FER412",
            f"{kind(rule)} is no combine rule",
            span=combine.rule.span,
            help="a rule is tl.add, tl.maximum, tl.minimum or a `@kernel` function",
        )

    def _empty_of(self, combine: Combine) -> list[Value | Static]:
        if combine.empty is None:
            return [Static(0)] * len(combine.values)
        empty = self.eval(combine.empty)
        self.builder.span = combine.empty.span
        given = empty if isinstance(empty, tuple) else (empty,) * len(combine.values)
        return [self.operand(e) for e in given]

    def _apply(
        self,
        combine: Combine,
        rule: Builtin | KernelDefinition,
        old: Sequence[Value],
        new: Sequence[Value],
    ) -> list[Value]:
        self.builder.span = combine.rule.span
        if isinstance(rule, Builtin):
            name = _RULES[rule.name]
            return [self.builder.binary(name, a, b) for a, b in zip(old, new, strict=True)]
        merged = self.inline(rule, [*old, *new], {})
        self.builder.span = combine.rule.span
        return [self.value(m) for m in (merged if isinstance(merged, tuple) else (merged,))]
