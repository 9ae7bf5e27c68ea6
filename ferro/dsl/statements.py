"""Statements of the syntax tree: assignments, branches, returns and inlined calls."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from ferro.dsl import ast
from ferro.dsl.context import Frame
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.expressions import Expressions
from ferro.dsl.ir import Block, Value
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.liveness import Names, assigned, live_after_each, reads
from ferro.dsl.objects import POISON, Object, Poisoned, Undefined, kind
from ferro.dsl.parameters import Parameter
from ferro.dsl.static import Static
from ferro.dsl.types import DType

_ONE_BRANCH = Undefined(
    "is defined in one branch of an `if` only", "give it a value before, or in both branches"
)


class Statements(Expressions):
    """Reads statements in order; an erroneous one is reported and its variables are poisoned."""

    def run(self, statements: Sequence[ast.Stmt], live: Names) -> None:
        """Read statements; ``live`` names what is read after them."""
        for statement, after in zip(statements, live_after_each(statements, live), strict=True):
            if self.frame.returned:
                return
            self.count(statement)
            with_label, with_depth = self.builder.label, self.depth
            try:
                self.deeper(statement)
                getattr(self, f"_do_{type(statement).__name__.lower()}")(statement, after)
            except CompileError as error:
                self.report(error)
                self.poison(assigned([statement]))
            except Poisoned:
                self.poison(assigned([statement]))
            finally:
                self.builder.label, self.depth = with_label, with_depth

    # simple statements

    def _do_pass(self, node: ast.Pass, live: Names) -> None:
        return

    def _do_expression(self, node: ast.Expression, live: Names) -> None:
        if not isinstance(node.value, (ast.Call, ast.Literal)):
            self.fail(
                "FER140",
                "the value of this statement is not used",
                span=node.span,
                help="assign it to a variable, or remove it",
            )
        self.eval(node.value)

    def _do_assign(self, node: ast.Assign, live: Names) -> None:
        if not node.unpack and _only_arithmetic(node.value):
            self.builder.label = node.targets[0].id
        thing = self.eval(node.value)
        if not node.unpack:
            self.bind(node.targets[0].id, thing)
            return
        if not isinstance(thing, tuple) or len(thing) != len(node.targets):
            self.fail(
                "FER141",
                f"{len(node.targets)} variables cannot take {kind(thing)}",
                span=node.span,
                help="name as many variables as there are values",
            )
        for target, item in zip(node.targets, thing, strict=True):
            self.bind(target.id, item)

    def _do_augassign(self, node: ast.AugAssign, live: Names) -> None:
        left = self.eval(node.target)
        right = self.eval(node.value)
        self.builder.span = node.span
        self.bind(node.target.id, self.binary(node.op, left, right))

    def _do_return(self, node: ast.Return, live: Names) -> None:
        if self.frame.branches:
            self.fail(
                "FER142",
                "`return` inside of a loop or a run-time branch",
                span=node.span,
                help="a function returns at its end, or in a branch of constexprs",
            )
        self.frame.returned, self.frame.result = True, POISON
        self.frame.result = self.eval(node.value) if node.value is not None else None
        if self.frame.launched and self.frame.result is not None:
            self.fail(
                "FER143",
                "a kernel returns nothing",
                span=node.span,
                help="write results with `tl.store`",
            )

    # branches

    def _do_if(self, node: ast.If, live: Names) -> None:
        test = self.condition(node.test)
        if not isinstance(test, Value):
            self.run(node.body if test else node.otherwise, live)
            return
        before = self.variables
        sides: list[tuple[Block, dict[str, Object]]] = []
        for body in (node.body, node.otherwise):
            block = Block()
            self.frame.variables = dict(before)
            with self.builder.inside(block):
                self._run_nested(body, live)
            sides.append((block, self.frame.variables))
        self.frame.variables = before
        self.builder.span = node.span
        self._merge(node, test, sides, live)

    def _merge(
        self, node: ast.If, test: Value, sides: list[tuple[Block, dict[str, Object]]], live: Names
    ) -> None:
        (then, a), (otherwise, b) = sides
        merged: list[str] = []
        for name in assigned([node]):
            if name in live and self._needs_merge(name, a, b):
                merged.append(name)
        for name in merged:
            self._yield_both(name, (then, a[name]), (otherwise, b[name]))
        self.builder.span = node.test.span
        results = self.builder.if_blocks(test, then, otherwise, merged)
        for name, value in zip(merged, results, strict=True):
            self.bind(name, value)

    def _needs_merge(self, name: str, a: dict[str, Object], b: dict[str, Object]) -> bool:
        left, right = a.get(name, _ONE_BRANCH), b.get(name, _ONE_BRANCH)
        if left is POISON or right is POISON:
            self.variables[name] = POISON
        elif isinstance(left, Undefined) or isinstance(right, Undefined):
            self.variables[name] = left if isinstance(left, Undefined) else right
        elif left is right or (isinstance(left, Static) and left == right):
            self.variables[name] = left
        else:
            return True
        return False

    def _yield_both(self, name: str, *sides: tuple[Block, Object]) -> None:
        dtypes = [thing.dtype for _, thing in sides if isinstance(thing, Value)]
        for block, thing in sides:
            with self.builder.inside(block):
                block.results.append(self._carried(name, thing, dtypes))

    def _carried(self, name: str, thing: Object, dtypes: Sequence[DType] = ()) -> Value:
        if isinstance(thing, Value):
            return thing
        if isinstance(thing, Static) and not isinstance(thing.value, str):
            return self.builder.value(thing, dtypes[0] if dtypes else None)
        self.fail(
            "FER144",
            f"`{name}` is {kind(thing)}, which cannot change at run time",
            help="only tiles and numbers can be assigned in loops and run-time branches",
        )

    def _run_nested(self, statements: Sequence[ast.Stmt], live: Names) -> None:
        self.frame.branches += 1
        try:
            self.run(statements, live)
        finally:
            self.frame.branches -= 1

    # functions

    def run_function(self, frame: Frame) -> Object:
        """Read the body of a function in its own frame and give what it returns."""
        self.frames.append(frame)
        label, self.builder.label = self.builder.label, ""
        try:
            self.run(self._pruned(frame.definition.tree.body), frozenset())
        finally:
            self.frames.pop()
            self.builder.label = label
        return frame.result

    def inline(
        self, definition: KernelDefinition, args: list[Object], keywords: dict[str, Object]
    ) -> Object:
        """The result of a kernel called by a kernel. Raises CompileError or Poisoned."""
        span = self.builder.span
        if any(f.definition is definition for f in self.frames):
            self.fail(
                "FER150",
                f"`{definition.name}` calls itself",
                help="calls are inlined, so recursion cannot end: use a loop",
            )
        variables = self._parameters_of(definition, args, keywords)
        result = self.run_function(Frame(definition, variables, span))
        self.builder.span = span
        if result is POISON:
            raise Poisoned
        return result

    def _parameters_of(
        self, definition: KernelDefinition, args: list[Object], keywords: dict[str, Object]
    ) -> dict[str, Object]:
        declared = definition.parameters
        entry = [p.name for p in declared.values() if p.kind not in ("free", "const")]
        if entry:
            self.fail(
                "FER151",
                f"`{definition.name}` is launched, not called",
                f"`{entry[0]}` is declared as {declared[entry[0]].kind}",
                help="only functions with undeclared or tl.const parameters are inlined",
            )
        signature = inspect.Signature([_python_parameter(p) for p in declared.values()])
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError as error:
            self.fail(
                "FER126",
                f"wrong arguments for `{definition.name}`: {error}",
                help=f"it takes ({', '.join(declared)})",
            )
        bound.apply_defaults()
        for parameter in declared.values():
            self._check_const(definition, parameter, bound.arguments[parameter.name])
        return dict(bound.arguments)

    def _check_const(
        self, definition: KernelDefinition, parameter: Parameter, given: Object
    ) -> None:
        if parameter.kind != "const":
            return
        if not isinstance(given, Static):
            self.fail(
                "FER114",
                f"`{parameter.name}` of `{definition.name}` must be known at compile time",
                f"got {kind(given)}",
                help="pass a constexpr or a literal",
            )
        if parameter.choices and given.value not in parameter.choices:
            self.fail(
                "FER110",
                f"{given!r} is no choice for `{parameter.name}`",
                help=f"choose one of {', '.join(map(repr, parameter.choices))}",
            )

    def _pruned(self, statements: Sequence[ast.Stmt]) -> tuple[ast.Stmt, ...]:
        """Statements without the branches that the function's parameters rule out.

        Branches are dropped before liveness is computed: what they assign is no variable.
        """
        changing = assigned(statements)
        fixed = frozenset(
            n
            for n, thing in self.variables.items()
            if n not in changing and not isinstance(thing, (Value, Undefined))
        )
        return tuple(self._prune(statements, fixed))

    def _prune(self, statements: Sequence[ast.Stmt], fixed: Names) -> list[ast.Stmt]:
        kept: list[ast.Stmt] = []
        for statement in statements:
            if isinstance(statement, ast.If):
                kept += self._prune_branch(statement, fixed)
            elif isinstance(statement, ast.For):
                body = tuple(self._prune(statement.body, fixed))
                kept.append(ast.For(statement.span, statement.target, statement.iterable, body))
            else:
                kept.append(statement)
        return kept

    def _prune_branch(self, node: ast.If, fixed: Names) -> list[ast.Stmt]:
        body = self._prune(node.body, fixed)
        otherwise = self._prune(node.otherwise, fixed)
        if reads(node.test) <= fixed:
            try:
                test = self.condition(node.test)
                if not isinstance(test, Value):
                    return body if test else otherwise
            except (CompileError, Poisoned):
                pass  # reported when the statement is read
        return [ast.If(node.span, node.test, tuple(body), tuple(otherwise))]


def _python_parameter(parameter: Parameter) -> inspect.Parameter:
    default = inspect.Parameter.empty
    if parameter.default is not None:
        return inspect.Parameter(
            parameter.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=Static(parameter.default),
        )
    return inspect.Parameter(
        parameter.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default
    )


# Calls whose result is an index: a variable assigned from one names the axis of an `arange` in it.
_INDEX_CALLS = ("arange", "block", "program_id", "cdiv", "minimum", "maximum", "min", "max")


def _only_arithmetic(node: ast.Expr) -> bool:
    """True for index arithmetic, in which an ``arange`` is the axis the variable stands for."""
    if isinstance(node, ast.Call):
        name = node.function.name if isinstance(node.function, ast.Attribute) else ""
        name = node.function.id if isinstance(node.function, ast.Name) else name
        return name in _INDEX_CALLS and all(_only_arithmetic(a) for a in node.args)
    if isinstance(node, ast.Binary):
        return _only_arithmetic(node.left) and _only_arithmetic(node.right)
    if isinstance(node, ast.Subscript):
        return _only_arithmetic(node.base)
    return isinstance(node, (ast.Name, ast.Literal, ast.Attribute))
