"""Expressions of the syntax tree to compile-time objects and IR values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ferro.dsl import ast
from ferro.dsl.builder_elementwise import symbol
from ferro.dsl.context import Context
from ferro.dsl.diagnostics import did_you_mean
from ferro.dsl.foreign import HINTS
from ferro.dsl.intrinsics import Intrinsics, method_names
from ferro.dsl.ir import Pointer, Quantised, Value
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.language import BUILTINS, Builtin
from ferro.dsl.objects import Chunk, Element, Object, kind
from ferro.dsl.parameters import written
from ferro.dsl.static import Static, fold
from ferro.dsl.types import DType

OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "//": "div", "/": "truediv", "%": "mod", "&": "and",
    "|": "or", "^": "xor", "<<": "shl", ">>": "shr", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
    "==": "eq", "!=": "ne",
}  # fmt: skip

_ELSEWHERE = {
    "**": "write `x * x` for `x ** 2`, `tl.sqrt(x)` for `x ** 0.5`, else `tl.exp(y * tl.log(x))`",
    "@": "use `tl.dot` or `tl.dot_i8`",
    "in": "compare with `==`",
    "not in": "compare with `!=`",
}


class Expressions(Context, ABC):
    """Evaluates every kind of ``ast.Expr``. Calls of kernels are left to the statements."""

    def eval(self, node: ast.Expr) -> Object:
        """The object an expression stands for. Raises CompileError or Poisoned."""
        with_depth = self.depth
        self.deeper(node)
        try:
            result = getattr(self, f"_{type(node).__name__.lower()}")(node)
        finally:
            self.depth = with_depth
        self.builder.span = node.span
        return result

    @abstractmethod
    def inline(
        self, definition: KernelDefinition, args: list[Object], keywords: dict[str, Object]
    ) -> Object:
        """The result of a kernel called by a kernel."""

    def _name(self, node: ast.Name) -> Object:
        self.builder.span = node.span
        return self.find(node.id)

    def _literal(self, node: ast.Literal) -> Object:
        return None if node.value is None else Static(node.value)

    def _slice(self, node: ast.Slice) -> Object:
        self.fail(
            "FER118",
            f"`{node.text}` has no meaning here",
            span=node.span,
            help="it keeps an axis in `x[:, None]`",
        )

    def _sequence(self, node: ast.Sequence) -> Object:
        return tuple(self.eval(i) for i in node.items)

    def _attribute(self, node: ast.Attribute) -> Object:
        base = self.eval(node.base)
        self.builder.span = node.span
        if isinstance(base, Chunk) and node.name in ("start", "stop"):
            return base.start if node.name == "start" else base.stop
        if isinstance(base, (Value, Static)):
            if node.name == "T":
                return self.builder.transpose(self.value(base))
            known = ["T", *method_names()]
            if node.name in known:
                self.fail(
                    "FER119", f"the method `{node.name}` is not called", help="write `x.to(tl.f32)`"
                )
            help = HINTS.get(node.name) or did_you_mean(
                node.name, known, f"a tile has {', '.join(known)}"
            )
            if node.name in BUILTINS:
                help = f"it is a function: `{BUILTINS[node.name].signature}`"
            self.fail("FER119", f"{kind(base)} has no attribute `{node.name}`", help=help)
        if getattr(base, "__name__", "") == "ferro.dsl.language":
            return self._language(node, base)
        self.fail(
            "FER119",
            f"{kind(base)} has no attribute `{node.name}`",
            help=HINTS.get(node.name) or "docs/language.md lists what can be used",
        )

    def _language(self, node: ast.Attribute, module: Any) -> Object:
        found = getattr(module, node.name, None)
        if isinstance(found, float):
            return Static(found)
        if isinstance(found, (Builtin, DType)):
            return found
        known = [n for n in dir(module) if isinstance(getattr(module, n), (Builtin, DType))]
        self.fail(
            "FER101",
            f"unknown name `{written(node)}`",
            help=HINTS.get(node.name)
            or did_you_mean(node.name, known, "docs/language.md lists all names"),
        )

    # subscripts

    def _subscript(self, node: ast.Subscript) -> Object:
        base = self.eval(node.base)
        if isinstance(base, (Pointer, Quantised)):
            return Element(base, tuple(self.eval(i) for i in node.items))
        if isinstance(base, Value):
            return self._new_axes(node, base)
        if isinstance(base, tuple) and len(node.items) == 1:
            return self._item(node, base)
        if base is None:
            self.fail(
                "FER120",
                f"`{written(node.base)}` is None: the optional buffer was left out",
                span=node.span,
                help=f"use it under `if {written(node.base)} is not None:`",
            )
        self.fail(
            "FER120",
            f"{kind(base)} cannot be indexed",
            span=node.span,
            help="buffers are indexed in `tl.load(p[...])`; tiles take `:` and `None` only",
        )

    def _item(self, node: ast.Subscript, base: tuple[Object, ...]) -> Object:
        place = self.integer(self.eval(node.items[0]), "the index of a list")
        if not -len(base) <= place < len(base):
            self.fail(
                "FER120",
                f"index {place} of a list of {len(base)}",
                span=node.span,
                help=f"indices go from 0 to {len(base) - 1}",
            )
        return base[place]

    def _new_axes(self, node: ast.Subscript, tile: Value) -> Value:
        kept = sum(isinstance(i, ast.Slice) and i.text == ":" for i in node.items)
        items: list[str | None] = []
        for item in node.items:
            if isinstance(item, ast.Slice):
                items += [":"] * (tile.type.rank - kept) if item.text == "..." else [":"]
            elif isinstance(item, ast.Literal) and item.value is None:
                items.append(None)
            else:
                self.fail(
                    "FER120",
                    "a tile cannot be indexed by a value",
                    f"tile: {tile.type!r}",
                    span=item.span,
                    help="tiles take `:` and `None` only: load the element "
                    "from memory, or choose it with `tl.where` and a reduction",
                )
        if items.count(":") != tile.type.rank:
            self.fail(
                "FER121",
                f"a subscript of {items.count(':')} axes on {kind(tile)}",
                span=node.span,
                help="write one `:` for each axis and `None` for a new one",
            )
        self.builder.span = node.span
        for axis, new in enumerate(items):
            if new is None:
                tile = self.builder.expand(tile, axis)
        return tile

    # operators

    def _unary(self, node: ast.Unary) -> Object:
        operand = self.operand(self.eval(node.operand))
        self.builder.span = node.span
        if node.op == "not":
            return self._not(operand)
        if isinstance(operand, Static) and not isinstance(operand.value, bool):
            if node.op == "~" and operand.is_int:
                return Static(~int(operand.value), operand.schedule)
            if node.op in "+-" and isinstance(operand.value, (int, float)):
                sign = -1 if node.op == "-" else 1
                return Static(sign * operand.value if sign < 0 else operand.value, operand.schedule)
        if node.op == "+":
            return operand
        return self.builder.unary("not" if node.op == "~" else "neg", operand)

    def _not(self, operand: Value | Static) -> Object:
        if isinstance(operand, Static):
            return Static(not self._truth(operand), operand.schedule)
        self._scalar_condition("not", "~", operand)
        return self.builder.not_(operand)

    def _binary(self, node: ast.Binary) -> Object:
        if node.op in ("is", "is not"):
            return self._is(node)
        if node.op in _ELSEWHERE:
            self.fail(
                "FER018",
                f"`{node.op}` is not part of the kernel language",
                span=node.span,
                help=_ELSEWHERE[node.op],
            )
        left, right = self.eval(node.left), self.eval(node.right)
        self.builder.span = node.span
        return self.binary(node.op, left, right)

    def binary(self, op: str, left: Object, right: Object) -> Object:
        """A binary operator on two objects: folded on compile-time ints, else an operation."""
        name = OPERATORS[op]
        if isinstance(left, Static) and isinstance(right, Static):
            folded = self._fold(name, left, right)
            if folded is not None:
                return folded
        a, b = self.operand(left), self.operand(right)
        if name == "truediv":
            return self.builder.call("div", a, b)
        if name == "div" and any(isinstance(x, Value) and x.dtype.is_float for x in (a, b)):
            self.fail(
                "FER205",
                "`//` is not defined on f32",
                f"left: {kind(a)}",
                f"right: {kind(b)}",
                help="divide f32 with `/`, then `tl.floor` if you must",
            )
        return self.builder.binary(name, a, b)

    def _fold(self, name: str, left: Static, right: Static) -> Static | None:
        if name == "truediv" and left.is_int and right.is_int:
            self.fail(
                "FER205",
                "`/` divides f32, both operands are compile-time ints",
                f"left: {left!r}",
                f"right: {right!r}",
                help="use `//`, or write one of them with a decimal point",
            )
        if name in ("div", "mod") and left.is_int and right.is_int and right.value == 0:
            self.fail("FER122", "division of constants by zero", help="check the constexprs")
        try:
            return self._fitting(fold(name, left, right))
        except TypeError:
            self.fail(
                "FER205",
                f"{symbol(name)} is not defined on these constants",
                f"left: {left!r}",
                f"right: {right!r}",
                help="strings compare with `==` only",
            )

    def _fitting(self, folded: Static | None) -> Static | None:
        if folded is not None and folded.is_int and abs(int(folded.value)) >> 63:
            self.fail(
                "FER203",
                "a compile-time integer of more than 64 bits",
                help="sizes are small: check the constexprs",
            )
        return folded

    def _is(self, node: ast.Binary) -> Static:
        left, right = self.eval(node.left), self.eval(node.right)
        if left is not None and right is not None:
            self.fail(
                "FER018", "`is` tests for None only", span=node.span, help="compare with `==`"
            )
        same = left is None and right is None
        return Static(same == (node.op == "is"))

    def _logical(self, node: ast.Logical) -> Object:
        result: Value | Static | None = None
        mark = False
        for item in node.operands:
            operand = self.operand(self.eval(item))
            self.builder.span = item.span
            if isinstance(operand, Static):
                mark = mark or operand.schedule
                if self._truth(operand) == (node.op == "or"):
                    return Static(operand.value, mark)
                continue
            self._scalar_condition(node.op, "&" if node.op == "and" else "|", operand)
            merge = self.builder.and_ if node.op == "and" else self.builder.or_
            result = operand if result is None else merge(result, operand)
        return Static(node.op == "and", mark) if result is None else result

    def _scalar_condition(self, word: str, instead: str, operand: Value) -> None:
        if operand.type.rank or operand.dtype.kind != "bool":
            self.fail(
                "FER123",
                f"`{word}` works on bool scalars",
                f"got {kind(operand)}",
                help=f"on tiles use `{instead}` between bracketed comparisons",
            )

    def _truth(self, operand: Static) -> bool:
        if isinstance(operand.value, bool):
            return operand.value
        self.fail(
            "FER206",
            "a condition must be bool",
            f"got {kind(operand)}",
            help="compare it, for example `n != 0`",
        )

    def _conditional(self, node: ast.Conditional) -> Object:
        test = self.condition(node.test)
        if isinstance(test, Value):
            self.fail(
                "FER124",
                "`a if cond else b` chooses by constexprs only",
                f"the condition is {kind(test)}",
                span=node.test.span,
                help="use `tl.where(cond, a, b)`",
            )
        return self.eval(node.then if test else node.otherwise)

    def condition(self, node: ast.Expr) -> bool | Value:
        """A test: a Python bool when it is decided now, else a bool scalar."""
        test = self.operand(self.eval(node))
        if isinstance(test, Value):
            return test
        if test.schedule:
            self.fail(
                "FER501",
                "a schedule constexpr decides what is computed",
                span=node.span,
                help="use a `tl.const`, or compute the same value on both sides",
            )
        return self._truth(test)

    # calls

    def _call(self, node: ast.Call) -> Object:
        if isinstance(node.function, ast.Attribute):
            base = self.eval(node.function.base)
            if isinstance(base, (Value, Static)) and node.function.name in method_names():
                args, keywords = self._arguments(node)
                self.builder.span = node.span
                return Intrinsics(self).method(node.function.name, base, args, keywords)
        function = self.eval(node.function)
        args, keywords = self._arguments(node)
        self.builder.span = node.span
        if isinstance(function, Builtin):
            return Intrinsics(self).call(function, args, keywords)
        if isinstance(function, DType):
            return self._typed(function, args)
        if isinstance(function, KernelDefinition):
            return self.inline(function, args, keywords)
        self.fail(
            "FER125",
            f"{kind(function)} cannot be called",
            span=node.function.span,
            help="kernels call `tl` functions and other kernels",
        )

    def _arguments(self, node: ast.Call) -> tuple[list[Object], dict[str, Object]]:
        args = [self.eval(a) for a in node.args]
        keywords: dict[str, Object] = {}
        for keyword in node.keywords:
            if keyword.name in keywords:
                self.fail(
                    "FER126",
                    f"`{keyword.name}` is given twice",
                    span=keyword.span,
                    help="drop one of them",
                )
            keywords[keyword.name] = self.eval(keyword.value)
        return args, keywords

    def _typed(self, dtype: DType, args: list[Object]) -> Value:
        if len(args) != 1:
            self.fail(
                "FER126",
                f"`tl.{dtype}` takes one argument",
                help=f"`tl.{dtype}(x)` is `x.to(tl.{dtype})`",
            )
        operand = self.operand(args[0])
        if isinstance(operand, Static):
            return self.builder.const(operand, dtype)
        return self.builder.cast(operand, dtype)
