"""Operands that lie across the lanes in memory: read along memory and turned in registers.

A key tile [keys, d] whose keys go on the lanes has neighbouring d in memory. Reading it lane by
lane would gather; instead square blocks are read as vectors along d and transposed by shuffles.
"""

from __future__ import annotations

from ferro.codegen.emit import Emitter, Index
from ferro.codegen.inline import VIEWS
from ferro.codegen.poly import ZERO, Poly
from ferro.codegen.views import view_index
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import f32


def turn_operand(e: Emitter, value: Value, lane: int, other: int) -> None:
    """Keep ``value`` with axis ``lane`` on the lanes if that takes a transposition: its elements
    are neighbours in memory along ``other`` and not along ``lane``."""
    if e.dialect.kind != "simd" or value in e.arrays or value.dtype != f32:
        return
    if value.shape[other] % e.lanes or value.shape[lane] % e.lanes:
        return
    across, along = memory_step(e, value, lane), memory_step(e, value, other)
    if across is None or along is None or along.constant != 1 or across.constant in (0, 1):
        return
    array = e.declare(value, lane)
    block = "rows"

    def turn(index: Index) -> None:
        name = e.names.fresh(block)
        e.line(f"{e.dialect.ctype(f32, True)} {name}[{e.lanes}];")

        def read(row: Index) -> None:
            at = list(index)
            at[lane] = at[lane] * e.lanes + row[0]
            ex = e.pull(value, tuple(at), other)
            e.line(f"{name}[{row[0]}] = {e.dialect.widen(ex)};")

        e.nest((e.lanes,), read, unroll=True)
        e.line(f"{e.dialect.helper('transpose', True)}({name});")

        def write(row: Index) -> None:
            at = list(index)
            at[other] = at[other] * e.lanes + row[0]
            e.line(f"{e.element(array, tuple(at))} = {name}[{row[0]}];")

        e.nest((e.lanes,), write, unroll=True)

    blocks = [n // e.lanes if axis == other else n for axis, n in enumerate(array.registers)]
    e.nest(tuple(blocks), turn, unroll=False)
    e.keep(value, array)


def memory_step(e: Emitter, value: Value, axis: int) -> Poly | None:
    """How far apart in memory neighbours along ``axis`` are; None if nothing is read there."""
    op = e.plan.defs.get(value)
    if op is None or value in e.arrays or value in e.plan.cheap or value.shape[axis] == 1:
        return None
    if op.name == "load":
        return _load_step(e, op, axis)
    if op.name in VIEWS:
        source = view_index(op, value, (ZERO,) * len(value.shape), axis, e.lanes)
        return None if source is None or source[2] is None else memory_step(e, source[0], source[2])
    steps = [memory_step(e, a, axis) for a in op.args if len(a.shape) == len(value.shape)]
    found = [s for s in steps if s is not None]
    return found[0] if len(set(found)) == 1 else None


def _load_step(e: Emitter, op: Op, axis: int) -> Poly | None:
    step, stride = ZERO, Poly.of(1)
    indices = op.args[: op.attrs["rank"]]
    for index, extent in zip(
        reversed(indices), reversed(e.extents[op.attrs["buffer"]]), strict=True
    ):
        affine = e.affine.of(index)
        if affine is None:
            return None
        step = step + affine.strides[axis] * stride
        stride = stride * extent
    return step
