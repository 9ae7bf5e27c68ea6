"""Numbers of programs: an IR value read back as an expression over dimensions and scalars."""

from __future__ import annotations

from ferro.dsl import limits
from ferro.dsl.context import Context
from ferro.dsl.extents import const, length, name
from ferro.dsl.ir import Extent, Value
from ferro.dsl.objects import kind
from ferro.dsl.static import Static

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "min": "min", "max": "max",
}  # fmt: skip


def extent_of(context: Context, count: Value | Static) -> Extent:
    """``count`` as an extent. Raises CompileError if it depends on more than sizes."""
    if isinstance(count, Static):
        return const(context.integer(count, "the number of programs"), count.schedule)
    extent = _read(context, count, {})
    if extent is None:
        context.fail(
            "FER134",
            "the number of programs must follow from sizes",
            f"got {kind(count)}",
            help="compute it from dimensions, integer scalars and constexprs",
        )
    return extent


def _read(context: Context, value: Value, known: dict[Value, Extent | None]) -> Extent | None:
    if value not in known:
        known[value] = _as_extent(context, value, known)
    return known[value]


def _as_extent(context: Context, value: Value, known: dict[Value, Extent | None]) -> Extent | None:
    op = context.builder.definitions.get(value.id)
    if op is None or not value.dtype.is_int or value.type.rank:
        return None
    if op.name == "const":
        return const(op.attrs["value"], "schedule" in op.attrs)
    if op.name == "scalar":
        return name(op.attrs["name"])
    if op.name not in _OPERATORS:
        return None
    left, right = (_read(context, a, known) for a in op.args)
    if left is None or right is None or length(left) + length(right) >= limits.EXTENT:
        return None
    if op.name == "div" and _rounds_up(left, right):
        return ("cdiv", left[1], right)
    return (_OPERATORS[op.name], left, right)


def _rounds_up(dividend: Extent, divisor: Extent) -> bool:
    """True for ``(a + (b - 1)) // b``, which is how ``tl.cdiv`` is expanded."""
    if dividend[0] != "+" or divisor[0] != "const":
        return False
    added = dividend[2]
    return bool(added[0] == "const" and added[1] == divisor[1] - 1)
