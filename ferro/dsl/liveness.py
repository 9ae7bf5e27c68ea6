"""Which variables a piece of syntax assigns, and which are still needed after each statement.

This decides what a loop carries and what the two sides of an ``if`` must agree on. Names only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferro.dsl import ast

Names = frozenset[str]


def assigned(statements: Iterable[ast.Stmt]) -> dict[str, ast.Node]:
    """Every name that may be assigned, with the last node that does it, in order of appearance."""
    found: dict[str, ast.Node] = {}
    for statement in statements:
        match statement:
            case ast.Assign(targets=targets):
                found.update((t.id, statement) for t in targets)
            case ast.AugAssign(target=target):
                found[target.id] = statement
            case ast.For(target=target, body=body):
                found[target.id] = target
                found.update(assigned(body))
            case ast.If(body=body, otherwise=otherwise):
                found.update(assigned(body))
                found.update(assigned(otherwise))
    return found


def live_before(statements: Sequence[ast.Stmt], after: Names) -> Names:
    """The names whose value may be read by ``statements`` or afterwards."""
    for statement in reversed(statements):
        after = _before(statement, after)
    return after


def live_after_each(statements: Sequence[ast.Stmt], after: Names) -> list[Names]:
    """For each statement, the names that may be read after it."""
    lives: list[Names] = []
    for statement in reversed(statements):
        lives.append(after)
        after = _before(statement, after)
    return lives[::-1]


def live_at_turn(loop: ast.For, after: Names) -> Names:
    """The names that may be read after one turn of a loop: by the next turn or behind the loop.

    Statements add and remove names whatever comes after them, so that one pass is the fixpoint.
    """
    return after | (live_before(loop.body, after) - {loop.target.id})


def reads(node: ast.Node | None) -> Names:
    """The names an expression reads."""
    return frozenset(n.id for n in ast.names(node)) if node is not None else frozenset()


def _before(statement: ast.Stmt, after: Names) -> Names:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return (after - {t.id for t in targets}) | reads(value)
        case ast.AugAssign(target=target, value=value):
            return after | {target.id} | reads(value)
        case ast.For(iterable=iterable):
            return live_at_turn(statement, after) | reads(iterable)
        case ast.If(test=test, body=body, otherwise=otherwise):
            return live_before(body, after) | live_before(otherwise, after) | reads(test)
        case ast.Return(value=value):
            return reads(value)
        case ast.Expression(value=value):
            return after | reads(value)
    return after
