"""Loads and stores of plain buffers: contiguous, uniform, strided and gathered; masks."""

from __future__ import annotations

from dataclasses import dataclass

from ferro.codegen.dialect import Ex
from ferro.codegen.emit import EMITS, PULLS, Emitter, Index
from ferro.codegen.inline import VIEWS
from ferro.codegen.poly import ZERO, Poly
from ferro.codegen.views import view_index
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import i32


@dataclass(frozen=True)
class Address:
    """Element offset at lane 0 and the step between lanes; ``varying`` is an int expression with
    one offset per lane where the index is no affine form."""

    offset: Poly
    step: Poly = ZERO
    varying: Ex | None = None


def address(e: Emitter, op: Op, index: Index, lane: int | None) -> Address:
    """Where a load or store goes for one register index."""
    extents = e.extents[op.attrs["buffer"]]
    stride = Poly.of(1)
    offset, step, terms = ZERO, ZERO, []
    for value, extent in zip(reversed(op.args[: op.attrs["rank"]]), reversed(extents), strict=True):
        affine = e.affine.of(value)
        if affine is not None:
            form = affine.scaled(stride)
            offset = offset + e.offset(form, index, lane)
            step = step + (form.strides[lane] if lane is not None else ZERO)
        else:
            ex = e.pull(value, index, lane)
            if ex.wide:
                terms.append(f"{ex.code} * {stride.c}" if stride.constant != 1 else ex.code)
            else:
                offset = offset + Poly.of(ex.code) * stride
        stride = stride * extent
    if not terms:
        return Address(offset, step)
    if not (offset.is_zero() and step.is_zero()):
        flat = step.is_zero()
        terms.append(e.dialect.widen(Ex(offset.c, i32)) if flat else e.iota(offset, step))
    return Address(ZERO, ZERO, Ex(f"({' + '.join(terms)})", i32, True))


def all_true(e: Emitter, mask: Value, index: Index, lane: int | None) -> str:
    """A scalar condition that holds if ``mask`` is true on every lane."""
    if not mask.shape or lane is None:
        return e.pull(mask, index, None).code
    op = e.plan.defs.get(mask)
    if op is not None:
        if op.name == "and":
            a, b = (all_true(e, m, index, lane) for m in op.args)
            return f"({a} && {b})"
        if op.name in VIEWS:
            source = view_index(op, mask, index, lane, e.lanes)
            if source is not None:
                return all_true(e, *source)
        if op.name in _COMPARED:
            found = _compare_all(e, op, index, lane)
            if found is not None:
                return found
    ex = e.pull(mask, index, lane)
    return e.template("all_lanes", mask=ex.code) if ex.wide else ex.code


_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _compare_all(e: Emitter, op: Op, index: Index, lane: int) -> str | None:
    """A comparison of the lane next to the border with a side that is the same for all lanes."""
    a, b = (e.affine.of(x) for x in op.args)
    if a is None or b is None:
        return None
    varying, other = (a, b) if b.strides[lane].is_zero() else (b, a)
    step = varying.strides[lane].constant
    if step is None or not other.strides[lane].is_zero():
        return None
    first = e.offset(varying, index, lane)
    last = first + step * (e.lanes - 1)
    low, high = (first, last) if step >= 0 else (last, first)
    symbol, limit = _COMPARED[op.name], e.offset(other, index, lane)
    below = symbol.startswith("<") == (varying is a)
    border = high if below else low
    sides = (border, limit) if varying is a else (limit, border)
    text = f"{sides[0].c} {symbol} {sides[1].c}"
    # lanes that wrapped around would not lie between the two ends
    wraps = low.wraps or high.wraps
    return f"({low.c} <= {high.c} && {text})" if wraps else f"({text})"


def pull_load(e: Emitter, op: Op, value: Value, index: Index, lane: int | None) -> Ex:
    rank = op.attrs["rank"]
    name, pointer = e.pointers[op.attrs["buffer"]]
    at = address(e, op, index, lane)
    mask, other = None, None
    if op.attrs["masked"]:
        mask = e.pull(op.args[rank], index, lane)
        zero = Ex(e.dialect.literal(0, value.dtype), value.dtype)
        other = e.pull(op.args[rank + 1], index, lane) if op.attrs["other"] else zero
    dtype = pointer.dtype
    if at.varying is None and at.step.is_zero() and (mask is None or not mask.wide):
        code = f"{name}[{at.offset}]"
        if mask is None or other is None:
            return Ex(code, dtype)
        wide = other.wide
        if wide:
            code = e.dialect.widen(Ex(code, dtype))
        return Ex(f"({mask.code} ? {code} : {other.code})", dtype, wide)
    contiguous = at.varying is None and at.step.constant == 1
    e.turn.gathers |= e.dialect.kind == "simd" and not contiguous
    code = e.template(
        "load",
        p=name,
        T=e.dialect.ctype(dtype, True),
        at=at.offset,
        step=at.step.c,
        contiguous=contiguous,
        varying=at.varying.code if at.varying else e.iota(at.offset, at.step),
        mask=mask and (e.dialect.widen(mask) if mask.wide else None),
        uniform=mask and (None if mask.wide else mask.code),
        other=other and e.dialect.widen(other),
        all=all_true(e, op.args[rank], index, lane) if mask and mask.wide else None,
        helper=lambda helper: e.dialect.helper(helper, True, dtype=dtype.name),
    )
    return Ex(f"({code})", dtype, True)


def emit_store(e: Emitter, op: Op) -> None:
    rank = op.attrs["rank"]
    value = op.args[rank]
    lane = e.lane_of(value)
    name, pointer = e.pointers[op.attrs["buffer"]]
    if op.attrs["buffer"] in e.shared_buffers:
        e.line(e.template("sync_global"))

    def body(index: Index) -> None:
        at = address(e, op, index, lane)
        stored = e.pull(value, index, lane)
        mask = e.pull(op.args[rank + 1], index, lane) if op.attrs["masked"] else None
        wide_mask = mask is not None and mask.wide
        e.line(
            e.template(
                "store",
                p=name,
                T=e.dialect.ctype(pointer.dtype, True),
                at=at.offset,
                lane=lane is not None,
                contiguous=at.varying is None and at.step.constant == 1,
                varying=at.varying.code if at.varying else e.iota(at.offset, at.step),
                step=at.step.c,
                value=e.dialect.widen(stored) if lane is not None else stored.code,
                mask=mask.code if mask and wide_mask else None,
                uniform=mask.code if mask and not wide_mask else None,
                all=all_true(e, op.args[rank + 1], index, lane) if wide_mask else None,
                helper=lambda helper: e.dialect.helper(helper, True, dtype=pointer.dtype.name),
            )
        )

    e.nest(e.registers(value.shape, lane), body)


def emit_load(e: Emitter, op: Op) -> None:
    result = op.result
    if result not in e.plan.used:
        return
    if op.attrs["buffer"] in e.shared_buffers:
        e.line(e.template("sync_global"))
    if not result.shape:
        e.bind_scalar(result, pull_load(e, op, result, (), None))
    elif result in e.plan.kept:
        e.materialise(result)


EMITS["store"] = emit_store
EMITS["load"] = emit_load
PULLS["load"] = pull_load


def emit_join(e: Emitter, op: Op) -> None:
    """Two tiles into one, at halves or alternating along an axis."""
    if op.result not in e.plan.used:
        return
    axis, pairs = op.attrs["axis"], op.attrs["how"] == "pairs"
    lane = e.lane_of(op.result)
    half = op.args[0].shape[axis]
    if lane == axis and (pairs or half % e.lanes):
        lane = None
    array = e.declare(op.result, lane)
    for which, part in enumerate(op.args):
        registers = e.registers(part.shape, lane)
        start = which if pairs else which * registers[axis]

        def body(index: Index, start: int = start, part: Value = part) -> None:
            at = index[axis] * (2 if pairs else 1) + start
            ex = e.pull(part, index, lane)
            code = e.dialect.widen(ex) if lane is not None else ex.code
            target = e.element(array, (*index[:axis], at, *index[axis + 1 :]))
            e.line(f"{target} = {code};")

        e.nest(registers, body)
    e.keep(op.result, array)


EMITS["join"] = emit_join
