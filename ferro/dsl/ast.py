"""The syntax tree of a kernel: what the author wrote, with a span on every node.

Names are not resolved and nothing is typed here. ``Expr`` and ``Stmt`` list all kinds of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from ferro.dsl.types import Span


@dataclass(frozen=True)
class Node:
    span: Span


@dataclass(frozen=True)
class Name(Node):
    id: str


@dataclass(frozen=True)
class Literal(Node):
    """An int, float, bool, str or None."""

    value: int | float | bool | str | None


@dataclass(frozen=True)
class Slice(Node):
    """The `:` or `...` of a subscript (``text``)."""

    text: str


@dataclass(frozen=True)
class Attribute(Node):
    base: Expr
    name: str


@dataclass(frozen=True)
class Subscript(Node):
    base: Expr
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(frozen=True)
class Call(Node):
    function: Expr
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]


@dataclass(frozen=True)
class Unary(Node):
    """``op`` is one of - + ~ not."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """Arithmetic, bit operations, shifts, and comparisons including `is` and `is not`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Logical(Node):
    """`and`, `or` over two or more operands."""

    op: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Conditional(Node):
    test: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Sequence(Node):
    """A list or a tuple display."""

    items: tuple[Expr, ...]


Expr = (
    Name
    | Literal
    | Slice
    | Attribute
    | Subscript
    | Call
    | Unary
    | Binary
    | Logical
    | Conditional
    | Sequence
)


@dataclass(frozen=True)
class Assign(Node):
    """``targets`` are names; ``unpack`` tells `a, = x` from `a = x`."""

    targets: tuple[Name, ...]
    value: Expr
    unpack: bool


@dataclass(frozen=True)
class AugAssign(Node):
    target: Name
    op: str
    value: Expr


@dataclass(frozen=True)
class For(Node):
    target: Name
    iterable: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Node):
    test: Expr
    body: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...]


@dataclass(frozen=True)
class Return(Node):
    value: Expr | None


@dataclass(frozen=True)
class Expression(Node):
    value: Expr


@dataclass(frozen=True)
class Pass(Node):
    pass


Stmt = Assign | AugAssign | For | If | Return | Expression | Pass


@dataclass(frozen=True)
class Parameter(Node):
    name: str
    annotation: Expr | None
    default: Expr | None


@dataclass(frozen=True)
class Function(Node):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Stmt, ...]
    docstring: str


def children(node: Node) -> Iterator[Node]:
    """The nodes directly under ``node``, in source order."""
    for field in fields(node):
        value = getattr(node, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Node):
                yield item


def names(node: Node) -> Iterator[Name]:
    """Every ``Name`` in ``node``, in source order."""
    if isinstance(node, Name):
        yield node
    for child in children(node):
        yield from names(child)
