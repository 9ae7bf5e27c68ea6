"""The template language of chat templates: Jinja in a sandbox, with the habits of llama.cpp.

A template comes with a model file and is not trusted. It cannot reach Python's internals or change
what it is given; what it may cost in time and memory is bounded by running it in a process of its
own (``ferro.models.renderer``).
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

NAME = "<template>"
LONGEST_SOURCE = 1 << 16  # bytes
LONGEST_TEXT = 1 << 24  # characters
LONGEST_MESSAGE = 2000

Plain = Callable[[Any], Any]


class BadTemplate(Exception):
    """A template that cannot be read."""


class TemplateFailed(Exception):
    """A template that gave up: its own message, or what went wrong in it."""


class Missing(jinja2.ChainableUndefined):
    """What is not there. Parts of it are not there either; added to a text it adds nothing."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, str) else self._fail_with_undefined_error()

    __radd__ = __add__


class GenerationTag(Extension):
    """``{% generation %}``, which marks what an assistant wrote, and changes nothing."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Membership(NodeTransformer):
    """Turns ``x in y`` into the test of that name, which minds values that are not there."""

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if len(node.ops) != 1 or node.ops[0].op not in ("in", "notin"):
            return node
        test = nodes.Test(node.expr, "in", [node.ops[0].expr], [], None, None, lineno=node.lineno)
        return test if node.ops[0].op == "in" else nodes.Not(test, lineno=node.lineno)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template."""

    intercepted_binops = frozenset("+")

    def __init__(self, plain: Plain = lambda value: value) -> None:
        """``plain`` makes values ready for JSON."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=Missing,
            extensions=[GenerationTag, loopcontrols],
        )
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace")}
        self.globals["raise_exception"] = _raise
        self.filters["tojson"] = _to_json(plain)
        self.tests["in"] = _in
        self.tests["iterable"] = lambda value: isinstance(value, Iterable)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        Membership().visit(tree)
        return tree

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"`{attribute}` is not for templates")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if left is None and isinstance(right, str):
            return right
        if right is None and isinstance(left, str):
            return left
        return super().call_binop(context, operator, left, right)


class Template:
    """A template that has been read. Raises BadTemplate if it cannot be."""

    def __init__(self, source: str, plain: Plain = lambda value: value) -> None:
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > LONGEST_SOURCE:
            raise BadTemplate(f"it has {size} bytes (at most {LONGEST_SOURCE})")
        try:
            sandbox = Sandbox(plain)
            code = sandbox.compile(source, NAME, NAME)
            self._template = sandbox.template_class.from_code(sandbox, code, sandbox.globals)
        except jinja2.TemplateSyntaxError as error:
            raise BadTemplate(f"line {error.lineno}: {error.message}") from None
        except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
            raise BadTemplate(f"{type(error).__name__}: {error}") from None

    def render(self, variables: Mapping[str, Any], now: float | None = None) -> str:
        """The text with ``variables``; ``now`` is the time that it may ask for (seconds since
        1970). Raises TemplateFailed."""
        moment = time.localtime(now)
        given = {
            "strftime_now": lambda form: time.strftime(form, moment),
            "datetime": time.strftime("%b %d %Y", moment),
            "date_string": time.strftime("%d %b %Y", moment),
            **variables,
        }
        try:
            text = self._template.render(given)
        except TemplateFailed:
            raise
        except RecursionError:
            raise TemplateFailed("it calls itself without end") from None
        except MemoryError:
            raise TemplateFailed("it takes too much memory") from None
        except Exception as error:  # anything may go wrong in a stranger's template
            raise TemplateFailed(f"{_place(error)}{error}"[:LONGEST_MESSAGE]) from None
        if len(text) > LONGEST_TEXT:
            raise TemplateFailed(f"its text has {len(text)} characters (at most {LONGEST_TEXT})")
        return text


def _raise(message: object = "") -> NoReturn:
    raise TemplateFailed(str(message)[:LONGEST_MESSAGE])


def _in(value: Any, container: Any) -> bool:
    if isinstance(value, jinja2.Undefined) and not isinstance(container, jinja2.Undefined):
        raise jinja2.UndefinedError("`in` takes no value that is not there")
    return value in container


def _to_json(plain: Plain) -> Callable[..., str]:
    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            plain(value),
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    return to_json


def _place(error: Exception) -> str:
    """The line of the template that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == NAME]
    return f"line {lines[-1]}: " if lines else ""
