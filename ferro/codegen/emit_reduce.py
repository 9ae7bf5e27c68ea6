"""Reductions in the canonical order, streaming sums, argmax.

A sum over an axis has 32 partials: element i goes to partial i mod 32, ascending; then partials
are paired at distances 16, 8, 4, 2, 1. With L lanes on the axis a register holds L partials, so
32 / L registers take turns. Partials that get no element are +0.0 and adding them changes nothing
(a partial is never -0.0), so they are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from ferro.codegen.dialect import Ex
from ferro.codegen.emit import EMITS, PULLS, UNROLL_LIMIT, Emitter, Index
from ferro.codegen.poly import Poly
from ferro.codegen.subgroup import has_sub_group
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import DType, boolean, f32, i32

PARTIALS = 32

# The element at register index i along the reduced axis: (value, its mask or None).
Get = Callable[[Poly], tuple[Ex, Ex | None]]


def insert(index: Index, axis: int, i: Poly) -> Index:
    return (*index[:axis], i, *index[axis:])


def combine(e: Emitter, kind: str, dtype: DType, a: str, b: str, suffix: str) -> str:
    """C text of one step of a reduction on values of ``suffix`` elements."""
    if kind == "sum":
        if dtype == f32:
            return f"{a} + {b}"
        return f"as_{dtype_c(dtype)}{suffix}(as_uint{suffix}({a}) + as_uint{suffix}({b}))"
    if dtype == f32:
        return f"{e.dialect.sized_helper(f'{kind}_f32', suffix)}({a}, {b})"
    return f"{kind}({a}, {b})"


def dtype_c(dtype: DType) -> str:
    return {"i32": "int", "u32": "uint"}[dtype.name]


def identity(e: Emitter, kind: str, dtype: DType) -> Ex:
    if kind == "sum":
        value: float = 0
    elif dtype == f32:
        value = float("-inf") if kind == "max" else float("inf")
    else:
        low, high = (0, 2**32 - 1) if dtype.name == "u32" else (-(2**31), 2**31 - 1)
        value = low if kind == "max" else high
    return Ex(e.dialect.literal(value, dtype), dtype)


def slots(e: Emitter, count: int, on_lanes: bool) -> int:
    """How many registers hold partials for ``count`` registers along the axis."""
    return min(count, PARTIALS // e.lanes if on_lanes else PARTIALS)


def accumulate_line(
    e: Emitter, kind: str, dtype: DType, wide: bool, partial: str, get: Get, i: Poly
) -> None:
    """Add the element at ``i`` to a partial."""
    x, mask = get(i)
    code = e.dialect.widen(x) if wide else x.code
    suffix = e.dialect.suffix(wide)
    new = Ex(f"({combine(e, kind, dtype, partial, code, suffix)})", dtype, wide)
    if mask is not None:
        new = e.dialect.select(mask, new, Ex(partial, dtype, wide))
    e.line(f"{partial} = {new.code};")


def accumulate(
    e: Emitter, kind: str, dtype: DType, wide: bool, partials: list[str], count: int, get: Get
) -> None:
    """All registers along the axis, ascending, to the partials in turn."""
    n = len(partials)
    turns = count // n
    if turns > 1:
        var = e.names.fresh("i")
        unroll = "UNROLL\n" if count <= UNROLL_LIMIT else ""
        with e.scope(f"{unroll}for (int {var} = 0; {var} < {turns}; ++{var})"):
            for u, partial in enumerate(partials):
                accumulate_line(e, kind, dtype, wide, partial, get, Poly.of(var) * n + u)
    done = turns * n if turns > 1 else 0
    for i in range(done, count):
        accumulate_line(e, kind, dtype, wide, partials[i % n], get, Poly.of(i))


def tree(
    e: Emitter, kind: str, dtype: DType, wide: bool, partials: list[str], on_lanes: bool
) -> Ex:
    """The canonical tree over the partials; the result is the same on all lanes if ``on_lanes``."""
    width = e.lanes if on_lanes else 1
    suffix = e.dialect.suffix(wide)
    step = PARTIALS // width // 2
    live = list(partials)
    while step:
        for u in range(min(step, len(live))):
            if u + step < len(live):
                line = combine(e, kind, dtype, live[u], live[u + step], suffix)
                e.line(f"{live[u]} = {line};")
        live = live[: max(step, 1)]
        step //= 2
    if not on_lanes:
        return Ex(live[0], dtype, wide)
    halves = [width >> i for i in range(1, width.bit_length())]
    names = {half: e.names.fresh("r") for half in halves}
    context = {"names": names, "x": live[0], "S": e.dialect.ctype(dtype)}

    def step_of(a: str, b: str, n: str) -> str:
        return combine(e, kind, dtype, a, b, n)

    if has_sub_group(e.dialect.target):
        text = e.template("sub_group_reduce", combine=step_of, **context)
    else:
        local = local_scratch(e, dtype)
        text = e.template("lane_reduce", local=local, combine=step_of, **context)
    e.line(text)
    return Ex(names[1], dtype, False)


def local_scratch(e: Emitter, dtype: DType) -> str:
    """The local array for reductions over work-items, declared on first use."""
    if e.dialect.kind == "simd":
        return ""
    if dtype not in e.scratch:
        name = e.scratch[dtype] = e.names.fresh(f"lanes_{dtype.name}")
        e.locals.append(f"__local {e.dialect.ctype(dtype)} {name}[{e.lanes}];")
    return e.scratch[dtype]


def reduce_axis(
    e: Emitter, kind: str, dtype: DType, wide: bool, count: int, get: Get, on_lanes: bool
) -> Ex:
    """One reduced element from ``count`` registers along the axis."""
    n = slots(e, count, on_lanes)
    start = identity(e, kind, dtype)
    names = [e.names.fresh("p") for _ in range(n)]
    ctype = e.dialect.ctype(dtype, wide)
    first = e.dialect.widen(start) if wide else start.code
    e.line(f"{ctype} " + ", ".join(f"{name} = {first}" for name in names) + ";")
    accumulate(e, kind, dtype, wide, names, count, get)
    return tree(e, kind, dtype, wide, names, on_lanes)


def emit_reduce(e: Emitter, op: Op) -> None:
    if op.result not in e.plan.used:
        return
    x, axis, kind = op.args[0], op.attrs["axis"], op.attrs["kind"]
    lane = e.lane_of(x)
    on_lanes = lane == axis
    count = e.registers(x.shape, lane)[axis]
    outer_lane = None if lane is None or on_lanes else lane - (lane > axis)
    mask_value = op.args[1] if op.attrs["masked"] else None

    def reduced(index: Index) -> Ex:
        def get(i: Poly) -> tuple[Ex, Ex | None]:
            at = insert(index, axis, i)
            mask = e.pull(mask_value, at, lane) if mask_value is not None else None
            return e.pull(x, at, lane), mask

        if kind == "argmax":
            return _argmax(e, x.dtype, lane, axis, count, get)
        return reduce_axis(e, kind, x.dtype, lane is not None, count, get, on_lanes)

    if not op.result.shape:
        name = e.names.fresh(op.result.name or kind)
        e.line(f"{e.dialect.ctype(op.result.dtype)} {name};")
        with e.scope(""):
            e.line(f"{name} = {reduced(()).code};")
        e.name_scalar(op.result, name)
        return
    array = e.declare(op.result, outer_lane)

    def body(index: Index) -> None:
        e.line(f"{e.element(array, index)} = {reduced(index).code};")

    e.nest(array.registers, body)
    e.keep(op.result, array)


def _argmax(e: Emitter, dtype: DType, lane: int | None, axis: int, count: int, get: Get) -> Ex:
    """The lowest index whose element has the bits of the maximum (any NaN equals any NaN)."""
    wide, on_lanes = lane is not None, lane == axis
    low = identity(e, "max", dtype)

    def masked(i: Poly) -> tuple[Ex, Ex | None]:
        x, mask = get(i)
        return (x if mask is None else e.dialect.select(mask, x, low)), None

    best = reduce_axis(e, "max", dtype, wide, count, masked, on_lanes)
    best = e.temporary(best)

    def index_of(i: Poly) -> tuple[Ex, Ex | None]:
        x, _ = masked(i)
        at = Ex(e.iota(i * e.lanes, Poly.of(1)), i32, True) if on_lanes else Ex(i.c, i32)
        hit = e.template(
            "same_bits",
            x=e.dialect.widen(x) if wide else x.code,
            best=e.dialect.widen(best) if wide else best.code,
            n=e.dialect.suffix(wide),
            floating=dtype == f32,
        )
        top = Ex(str(2**31 - 1), i32)
        if wide and not on_lanes:
            at = Ex(e.dialect.widen(at), i32, True)
        return e.dialect.select(Ex(f"({hit})", boolean, wide), at, top), None

    return reduce_axis(e, "min", i32, wide, count, index_of, on_lanes)


def emit_accumulate(e: Emitter, op: Op) -> None:
    state, x, axis = op.args[0], op.args[1], op.attrs["axis"]
    array = e.in_place(op.result, state)
    last = len(state.shape) - 1
    on_lanes = array.lane == last
    others = [i for i in range(len(x.shape)) if i != axis]
    lane = axis if on_lanes else None if array.lane is None else others[array.lane]
    count = e.registers(x.shape, lane)[axis]
    mask_value = op.args[2] if op.attrs["masked"] else None

    def body(index: Index) -> None:
        def get(i: Poly) -> tuple[Ex, Ex | None]:
            at = insert(index, axis, i)
            mask = e.pull(mask_value, at, lane) if mask_value is not None else None
            return e.pull(x, at, lane), mask

        n = PARTIALS // e.lanes if on_lanes else PARTIALS
        partials = [e.element(array, (*index, Poly.of(u))) for u in range(n)]
        accumulate(e, "sum", f32, lane is not None, partials, count, get)

    e.nest(array.registers[:-1], body)
    e.keep(op.result, array)


def emit_finish(e: Emitter, op: Op) -> None:
    if op.result not in e.plan.used:
        return
    (state,) = op.args
    lane = e.lane_of(state)
    last = len(state.shape) - 1
    on_lanes = lane == last
    n = PARTIALS // e.lanes if on_lanes else PARTIALS
    wide = lane is not None

    def finished(index: Index) -> Ex:
        names = []
        for u in range(n):
            ex = e.pull(state, (*index, Poly.of(u)), lane)
            name = e.names.fresh("p")
            code = e.dialect.widen(ex) if wide else ex.code
            e.line(f"{e.dialect.ctype(f32, wide)} {name} = {code};")
            names.append(name)
        return tree(e, "sum", f32, wide, names, on_lanes)

    if not op.result.shape:
        name = e.names.fresh(op.result.name or "total")
        e.line(f"float {name};")
        with e.scope(""):
            e.line(f"{name} = {finished(()).code};")
        e.name_scalar(op.result, name)
        return
    array = e.declare(op.result, None if on_lanes else lane)

    def body(index: Index) -> None:
        e.line(f"{e.element(array, index)} = {finished(index).code};")

    e.nest(array.registers, body)
    e.keep(op.result, array)


def pull_partials(e: Emitter, op: Op, value: Value, index: Index, lane: int | None) -> Ex:
    return Ex("0.0f", f32)


EMITS.update(reduce=emit_reduce, accumulate=emit_accumulate, finish=emit_finish)
PULLS["partials"] = pull_partials
