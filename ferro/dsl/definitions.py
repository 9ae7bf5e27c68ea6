"""Where each value of a kernel comes from, and which values are the same one.

Two pure operations with equal operands and attributes give one value: analyses reason about its
representative, so that a mask and an index that name the same expression meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ferro.dsl import ir
from ferro.dsl.printer import attribute

_EFFECTS = {"store", "store_block", "breakpoint", "for", "if", "walk"}
_NO_MEANING = {"schedule", "schedule_axes"}
_SHAPES = {"broadcast", "expand", "reshape", "transpose"}


@dataclass(frozen=True)
class Parameter:
    """A block parameter: number ``position`` of block ``block`` of ``op``."""

    op: ir.Op
    block: int
    position: int


@dataclass(frozen=True, eq=False)
class Definitions:
    """``op`` and ``parameter`` say what made a value; ``scalar`` names runtime scalars."""

    op: dict[ir.Value, ir.Op]
    parameter: dict[ir.Value, Parameter]
    scalar: dict[ir.Value, str]
    representative: dict[ir.Value, ir.Value]

    def same(self, value: ir.Value) -> ir.Value:
        return self.representative.get(value, value)


def definitions(kernel: ir.Kernel) -> Definitions:
    """The definitions of every value in ``kernel.body``."""
    found = Definitions({}, {}, {s.value: s.name for s in kernel.scalars}, {})
    parameters = {s.name: s.value for s in kernel.scalars}
    readonly = {b.name for b in kernel.buffers if b.access == "in"}
    first: dict[tuple[Any, ...], ir.Op] = {}
    for op in ir.walk(kernel.body):
        for block, inner in enumerate(op.blocks):
            for position, value in enumerate(inner.params):
                found.parameter[value] = Parameter(op, block, position)
        for result in op.results:
            found.op[result] = op
        if op.name == "scalar":
            found.scalar[op.result] = op.attrs["name"]
            found.representative[op.result] = parameters[op.attrs["name"]]
            continue
        if op.name in _EFFECTS or (
            op.name.startswith("load") and op.attrs["buffer"] not in readonly
        ):
            continue
        twin = first.setdefault(_key(op, found), op)
        for mine, theirs in zip(op.results, twin.results, strict=True):
            found.representative[mine] = theirs
    return found


def _key(op: ir.Op, found: Definitions) -> tuple[Any, ...]:
    attributes = tuple(
        (k, attribute(v)) for k, v in sorted(op.attrs.items()) if k not in _NO_MEANING
    )
    if op.name == "arange":  # its label is for tuning only
        attributes = tuple(a for a in attributes if a[0] != "axis")
    operands = tuple(found.same(a).id for a in op.args)
    return (op.name, operands, attributes, tuple(r.type for r in op.results))


Axes = tuple[int | None, ...]


def source(op: ir.Op, axes: Axes) -> tuple[ir.Value, Axes] | None:
    """The operand that a shape operation shows, and where its axes lie.

    ``axes`` places each axis of the result in some outer tile (None: does not vary). None for an
    operation that is no mere view.
    """
    if op.name not in _SHAPES:
        return None
    (x,) = op.args
    if op.name == "broadcast":
        offset = op.result.type.rank - x.type.rank
        inner = axes[offset:]
    elif op.name == "expand":
        axis = op.attrs["axis"]
        inner = axes[:axis] + axes[axis + 1 :]
    elif op.name == "transpose":
        place: list[int | None] = [None] * x.type.rank
        for result_axis, axis in enumerate(op.attrs["perm"]):
            place[axis] = axes[result_axis]
        inner = tuple(place)
    else:
        wide = [a for a, n in zip(axes, op.result.shape, strict=True) if n != 1]
        if [n for n in op.result.shape if n != 1] != [n for n in x.shape if n != 1]:
            return None
        rest = iter(wide)
        inner = tuple(next(rest) if n != 1 else None for n in x.shape)
    return x, settle(x, inner)


def settle(value: ir.Value, axes: Axes) -> Axes:
    """``axes`` with None for the axes of extent 1."""
    return tuple(None if n == 1 else a for a, n in zip(axes, value.shape, strict=True))


@dataclass(frozen=True)
class Induction:
    """A carried value: ``initial``, then ``pace`` more in each turn of ``loop``.

    ``constant`` is the operation that makes the pace, ``following`` the value of the next turn.
    """

    loop: ir.Op
    initial: ir.Value
    pace: int
    constant: ir.Op
    following: ir.Value


def induction(defined: Definitions, value: ir.Value) -> Induction | None:
    """How a parameter of a loop grows, if it is by a constant in every turn."""
    parameter = defined.parameter.get(value)
    if parameter is None or parameter.op.name != "for" or parameter.position == 0:
        return None
    if not value.dtype.is_int:
        return None
    following = parameter.op.blocks[0].results[parameter.position - 1]
    made = defined.op.get(following)
    if made is None or made.name not in ("add", "sub") or value not in made.args:
        return None
    first = made.args[0] is value
    constant = defined.op.get(made.args[1] if first else made.args[0])
    while constant is not None and constant.name in ("broadcast", "expand"):
        constant = defined.op.get(constant.args[0])
    if constant is None or constant.name != "const" or (made.name == "sub" and not first):
        return None
    pace = int(constant.attrs["value"]) * (-1 if made.name == "sub" else 1)
    initial = parameter.op.args[2 + parameter.position]
    return Induction(parameter.op, initial, pace, constant, following)
