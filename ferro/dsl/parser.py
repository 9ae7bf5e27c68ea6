"""Source text of one function to its syntax tree, with Lark and a Python-like indenter.

Positions are those of the author's file: the text may start at any line and be indented.
"""

from __future__ import annotations

import ast as python
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import Any

from lark import Lark, Token, v_args
from lark.exceptions import UnexpectedInput, VisitError
from lark.indenter import DedentError, Indenter
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from ferro.dsl import ast, limits
from ferro.dsl.diagnostics import CompileError, fail
from ferro.dsl.explain import bad_dedent, explain
from ferro.dsl.types import Span

_CONSTANTS: dict[str, bool | None] = {"True": True, "False": False, "None": None}


class _Indenter(Indenter):
    NL_type = "_NEWLINE"
    OPEN_PAREN_types = ["LPAR", "LSQB"]  # noqa: RUF012
    CLOSE_PAREN_types = ["RPAR", "RSQB"]  # noqa: RUF012
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 8


# Lark's indenter keeps the state of a parse in the parser: one parse at a time.
_turn = Lock()


@cache
def grammar() -> Lark:
    """The parser's tables, made once a process; to be used by one thread at a time."""
    text = files("ferro.dsl").joinpath("grammar.lark").read_text()
    return Lark(
        text,
        parser="lalr",
        postlex=_Indenter(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


def parse(text: str, file: str, line: int = 1) -> ast.Function:
    """The function in ``text``, whose first line is line ``line`` of ``file``.

    Raises CompileError for anything outside of the language.
    """
    flat, indent = _dedent(text)
    builder = _TreeBuilder(file, line - 1, indent)
    try:
        with _turn:
            tree = grammar().parse(flat + "\n")
        function = builder.transform(tree)
    except UnexpectedInput as error:
        raise CompileError([explain(error, flat, builder.position)]) from None
    except DedentError:
        number, width = bad_dedent(flat)
        span = builder.position(number, width + 1, number, width + 2)
        fail("FER003", span, "the indentation fits no enclosing block", "indent by four spaces")
    except VisitError as error:
        raise error.orig_exc from None
    _check_depth(function)
    return function


def _check_depth(function: ast.Function) -> None:
    """Refuse a tree that the stages behind could not recurse over."""
    level: list[ast.Node] = [function]
    for _ in range(limits.SYNTAX_DEPTH):
        level = [child for node in level for child in ast.children(node)]
        if not level:
            return
    fail(
        "FER022",
        level[0].span,
        f"blocks and operators nest more than {limits.SYNTAX_DEPTH} deep",
        "assign parts to variables, or move an inner block into a function of its own",
    )


def _dedent(text: str) -> tuple[str, int]:
    lines = text.split("\n")
    first = next((x for x in lines if x.strip()), "")
    indent = len(first) - len(first.lstrip())
    margin = first[:indent]
    return "\n".join(x.removeprefix(margin) for x in lines), indent


@v_args(meta=True)
class _TreeBuilder(Transformer_NonRecursive[Any, ast.Function]):
    """Lark's tree to the nodes of ``ferro.dsl.ast``."""

    def __init__(self, file: str, lines: int, columns: int) -> None:
        super().__init__()
        self._file, self._lines, self._columns = file, lines, columns

    def position(self, line: int, column: int, end_line: int, end_column: int) -> Span:
        """A span of the parsed text as a span of the author's file."""
        return Span(
            self._file,
            line + self._lines,
            column + self._columns,
            end_line + self._lines,
            end_column + self._columns,
        )

    def _span(self, meta: Meta | Token) -> Span:
        if getattr(meta, "line", None) is None:
            return self.position(1, 1, 1, 1)
        return self.position(meta.line, meta.column, meta.end_line, meta.end_column)

    def _new(self, name: Token) -> str:
        """The word of a name that is given to something."""
        word = str(name)
        if word in _CONSTANTS or not word.isidentifier():
            fail(
                "FER002",
                self._span(name),
                f"`{word}` cannot be given as a name",
                "take another word of letters, digits and `_`",
            )
        return word

    # function

    def start(self, meta: Meta, items: list[Any]) -> ast.Function:
        return next(i for i in reversed(items) if isinstance(i, ast.Function))

    def function(self, meta: Meta, items: list[Any]) -> ast.Function:
        name, parameters, _, suite = items
        body, docstring = _without_docstring(suite)
        called = self._new(name)
        return ast.Function(self._span(name), called, tuple(parameters or ()), body, docstring)

    def parameters(self, meta: Meta, items: list[Any]) -> list[ast.Parameter]:
        return [i for i in items if isinstance(i, ast.Parameter)]

    def parameter(self, meta: Meta, items: list[Any]) -> ast.Parameter:
        name, annotation, default = items
        return ast.Parameter(self._span(meta), self._new(name), annotation, default)

    def suite(self, meta: Meta, items: list[Any]) -> tuple[ast.Stmt, ...]:
        return tuple(items)

    # statements

    def assign(self, meta: Meta, items: list[Any]) -> ast.Assign:
        (names, unpack), value = items
        return ast.Assign(self._span(meta), names, value, unpack)

    def targets(self, meta: Meta, items: list[Token | None]) -> tuple[tuple[ast.Name, ...], bool]:
        tokens = [t for t in items if t is not None]
        names = tuple(ast.Name(self._span(t), self._new(t)) for t in tokens if t.type == "NAME")
        return names, len(tokens) > 1

    def augassign(self, meta: Meta, items: list[Any]) -> ast.AugAssign:
        name, op, value = items
        target = ast.Name(self._span(name), self._new(name))
        return ast.AugAssign(self._span(meta), target, str(op)[:-1], value)

    def expression(self, meta: Meta, items: list[Any]) -> ast.Expression:
        return ast.Expression(self._span(meta), items[0])

    def return_value(self, meta: Meta, items: list[Any]) -> ast.Return:
        return ast.Return(self._span(meta), items[0])

    def nothing(self, meta: Meta, items: list[Any]) -> ast.Pass:
        return ast.Pass(self._span(meta))

    def for_loop(self, meta: Meta, items: list[Any]) -> ast.For:
        name, iterable, body = items
        target = ast.Name(self._span(name), self._new(name))
        return ast.For(self._span(meta), target, iterable, body)

    def branch(self, meta: Meta, items: list[Any]) -> ast.If:
        test, body, *others = items
        otherwise: tuple[ast.Stmt, ...] = others.pop() or ()
        for clause in reversed(others):
            span, inner_test, inner_body = clause
            otherwise = (ast.If(span, inner_test, inner_body, otherwise),)
        return ast.If(self._span(meta), test, body, otherwise)

    def other_branch(
        self, meta: Meta, items: list[Any]
    ) -> tuple[Span, ast.Expr, tuple[ast.Stmt, ...]]:
        return (self._span(meta), items[0], items[1])

    def last_branch(self, meta: Meta, items: list[Any]) -> tuple[ast.Stmt, ...]:
        return tuple(items[0])

    # expressions

    def name(self, meta: Meta, items: list[Token]) -> ast.Expr:
        word = str(items[0])
        span = self._span(meta)
        return ast.Literal(span, _CONSTANTS[word]) if word in _CONSTANTS else ast.Name(span, word)

    def number(self, meta: Meta, items: list[Token]) -> ast.Literal:
        return self._literal(meta, str(items[0]))

    def string(self, meta: Meta, items: list[Token]) -> ast.Literal:
        return self._literal(meta, " ".join(items))

    def _literal(self, meta: Meta, text: str) -> ast.Literal:
        try:
            return ast.Literal(self._span(meta), python.literal_eval(f"({text})"))
        except (SyntaxError, ValueError) as error:
            reason = getattr(error, "msg", str(error))
            fail("FER020", self._span(meta), f"bad literal: {reason}", "write it as in Python")

    def group(self, meta: Meta, items: list[Any]) -> ast.Expr:
        return items[0]

    def tuple_display(self, meta: Meta, items: list[Any]) -> ast.Sequence:
        return ast.Sequence(self._span(meta), _nodes(items))

    def list_display(self, meta: Meta, items: list[Any]) -> ast.Sequence:
        return ast.Sequence(self._span(meta), _nodes(items))

    def attribute(self, meta: Meta, items: list[Any]) -> ast.Attribute:
        return ast.Attribute(self._span(meta), items[0], str(items[1]))

    def subscript(self, meta: Meta, items: list[Any]) -> ast.Subscript:
        return ast.Subscript(self._span(meta), items[0], items[1])

    def items(self, meta: Meta, items: list[Any]) -> tuple[ast.Expr, ...]:
        return _nodes(items)

    def slice(self, meta: Meta, items: list[Token]) -> ast.Slice:
        return ast.Slice(self._span(meta), str(items[0]))

    def call(self, meta: Meta, items: list[Any]) -> ast.Call:
        function, given = items
        given = given or []
        args = tuple(a for a in given if not isinstance(a, ast.Keyword))
        keywords = tuple(a for a in given if isinstance(a, ast.Keyword))
        return ast.Call(self._span(meta), function, args, keywords)

    def arguments(self, meta: Meta, items: list[Any]) -> list[Any]:
        return [i for i in items if isinstance(i, ast.Node)]

    def keyword(self, meta: Meta, items: list[Any]) -> ast.Keyword:
        return ast.Keyword(self._span(meta), self._new(items[0]), items[1])

    def unary(self, meta: Meta, items: list[Any]) -> ast.Expr:
        return ast.Unary(self._span(meta), str(items[0]), items[1])

    def logical_not(self, meta: Meta, items: list[Any]) -> ast.Unary:
        return ast.Unary(self._span(meta), "not", items[0])

    def logical_and(self, meta: Meta, items: list[Any]) -> ast.Logical:
        return ast.Logical(self._span(meta), "and", tuple(items))

    def logical_or(self, meta: Meta, items: list[Any]) -> ast.Logical:
        return ast.Logical(self._span(meta), "or", tuple(items))

    def conditional(self, meta: Meta, items: list[Any]) -> ast.Conditional:
        then, test, otherwise = items
        return ast.Conditional(self._span(meta), test, then, otherwise)

    def binary(self, meta: Meta, items: list[Any]) -> ast.Binary:
        left, op, right = items
        return ast.Binary(self._span(meta), str(op), left, right)

    def compare(self, meta: Meta, items: list[Any]) -> ast.Binary:
        if len(items) > 3:
            fail(
                "FER004",
                self._span(meta),
                "chained comparison",
                "write `(a < b) & (b < c)` on tiles, `a < b and b < c` on scalars",
            )
        left, op, right = items
        return ast.Binary(self._span(meta), " ".join(op.split()), left, right)


def _nodes(items: Sequence[Any]) -> tuple[ast.Expr, ...]:
    return tuple(i for i in items if isinstance(i, ast.Node))  # type: ignore[misc]


def _without_docstring(body: tuple[ast.Stmt, ...]) -> tuple[tuple[ast.Stmt, ...], str]:
    first = body[0] if body else None
    if isinstance(first, ast.Expression) and isinstance(first.value, ast.Literal):
        if isinstance(first.value.value, str):
            return body[1:], first.value.value
    return body, ""
