"""Loops, branches and ordered walks."""

from __future__ import annotations

from collections.abc import Sequence

from ferro.codegen.dialect import Ex, bare
from ferro.codegen.emit import EMITS, Array, Emitter, Index
from ferro.codegen.writer import Lines
from ferro.dsl.ir import Block, Op, Value
from ferro.dsl.types import boolean

# A variable that control flow assigns: an array of registers, or the name of a C scalar.
Variable = Array | str

_MOVES = frozenset({"reshape", "transpose", "split"})


def declare(e: Emitter, value: Value) -> Variable:
    if value.shape:
        return e.declare(value, e.lane_of(value))
    name = e.names.fresh(value.name or "s")
    e.line(f"{e.dialect.ctype(value.dtype)} {name};")
    return name


def bind(e: Emitter, value: Value, variable: Variable) -> None:
    """``value`` is what ``variable`` holds from here on."""
    if isinstance(variable, str):
        e.name_scalar(value, variable)
    else:
        e.keep(value, Array(variable.name, variable.lane, variable.registers, Lines()))


def assign(e: Emitter, variable: Variable, value: Value) -> None:
    if isinstance(variable, str):
        code = e.scalar(value).code
        if code != variable:
            e.line(f"{variable} = {code};")
    else:
        e.fill(variable, value)


def assign_all(
    e: Emitter, variables: Sequence[Variable], olds: Sequence[Value], news: Sequence[Value]
) -> None:
    """Assign all at once: no new value sees another's assignment.

    ``olds`` are the values that the variables hold. A new tile that reads its own old one
    element by element is written in place; everything else goes through temporaries.
    """
    copies: list[tuple[Variable, Variable]] = []
    direct: list[tuple[Variable, Value]] = []
    own = {v.name: i for i, v in enumerate(variables) if isinstance(v, Array)}
    for i, (variable, new) in enumerate(zip(variables, news, strict=True)):
        if isinstance(variable, Array):
            array = e.arrays.get(new)
            if array is not None and array.name == variable.name:
                continue
            if _reads(e, new, set(olds), moved=False) <= {olds[i]} and not (
                array is not None and array.name in own
            ):
                direct.append((variable, new))
                continue
        elif e.scalar(new).code == variable:
            continue
        copies.append((variable, _copy(e, new, variable)))
    for variable, new in direct:
        assign(e, variable, new)
    for variable, copy in copies:
        if isinstance(copy, str):
            e.line(f"{variable} = {copy};")
        else:
            _move(e, variable, copy)


def _move(e: Emitter, to: Variable, source: Array) -> None:
    assert isinstance(to, Array)
    e.nest(to.registers, lambda i: e.line(f"{e.element(to, i)} = {e.element(source, i)};"))


def _copy(e: Emitter, new: Value, variable: Variable) -> Variable:
    if isinstance(variable, str):
        return e.temporary(Ex(e.scalar(new).code, new.dtype), new.name).code
    copy = e.declare(new, variable.lane)
    e.fill(copy, new)
    return copy


def _reads(e: Emitter, value: Value, olds: set[Value], moved: bool) -> set[Value]:
    """Which of ``olds`` an expression reads; two of them (any two) if it moves their elements."""
    if value in olds:
        return set(olds) | {value, Value(value.type)} if moved else {value}
    op = e.plan.defs.get(value)
    if op is None or value in e.arrays or value in e.scalars or value in e.plan.cheap:
        return set()
    found: set[Value] = set()
    for arg in op.args:
        found |= _reads(e, arg, olds, moved or op.name in _MOVES)
    return found


def emit_for(e: Emitter, op: Op) -> None:
    (body,) = op.blocks
    start, stop, step = (e.scalar(a).code for a in op.args[:3])
    counter, params = body.params[0], body.params[1:]
    variables: list[Variable] = []
    for param, init in zip(params, op.args[3:], strict=True):
        variable = declare(e, param)
        assign(e, variable, init)
        variables.append(variable)
    name = e.names.fresh(counter.name or "i")
    with e.scope(f"for (int {name} = {start}; {name} < {stop}; {name} += {step})"):
        e.name_scalar(counter, name)
        for param, variable in zip(params, variables, strict=True):
            bind(e, param, variable)
        e.block(body)
        assign_all(e, variables, params, body.results)
    for result, variable in zip(op.results, variables, strict=True):
        bind(e, result, variable)


def emit_if(e: Emitter, op: Op) -> None:
    variables = [declare(e, result) for result in op.results]
    condition = e.scalar(op.args[0]).code
    filled = [bool(block.ops or block.results) for block in op.blocks]
    heads = (f"if ({condition})", "else" if filled[0] else f"if (!{condition})")
    for head, block, some in zip(heads, op.blocks, filled, strict=True):
        if not some:
            continue
        with e.scope(head):
            e.block(block)
            for variable, value in zip(variables, block.results, strict=True):
                assign(e, variable, value)
    for result, variable in zip(op.results, variables, strict=True):
        bind(e, result, variable)


def emit_walk(e: Emitter, op: Op) -> None:
    body, rule = op.blocks
    n, *empties = op.args
    variables: list[Variable] = []
    for result, empty in zip(op.results, empties, strict=True):
        variable = declare(e, result)
        assign(e, variable, empty)
        variables.append(variable)
    count = len(op.results)
    when = body.results[count] if op.attrs["when"] else None
    seen = _declare_seen(e, when)
    start = e.names.fresh(body.params[0].name or "start")
    stop = e.names.fresh(body.params[1].name or "stop")
    end, size = e.scalar(n).code, op.attrs["size"]
    with e.scope(f"for (int {start} = 0; {start} < {end}; {start} += {size})"):
        e.line(f"const int {stop} = min({start} + {size}, {end});")
        e.name_scalar(body.params[0], start)
        e.name_scalar(body.params[1], stop)
        e.block(body)
        news = body.results[:count]
        _settle(e, body.results)
        if when is None and e.dialect.peels_wrongly:
            _merge_selected(e, Ex(f"({start} == 0)", boolean), variables, rule, news)
        elif when is None:
            _merge(e, f"if ({start} == 0)", variables, rule, news)
        elif not when.shape:
            with e.scope(f"if ({e.scalar(when).code})"):
                _merge(e, f"if (!{seen})", variables, rule, news)
                e.line(f"{seen} = 1;")
        else:
            assert isinstance(seen, Array)
            _merge_where(e, when, seen, variables, rule, news)
    for result, variable in zip(op.results, variables, strict=True):
        bind(e, result, variable)


def _settle(e: Emitter, values: Sequence[Value]) -> None:
    """Give tiles that are still expressions an array, since they are read several times."""
    for value in values:
        if value.shape and value not in e.arrays:
            e.materialise(value)


def _part(e: Emitter, value: Value, variable: Variable, variables: Sequence[Variable]) -> None:
    """Copy a tile that lives in another variable than its own, before that one is assigned."""
    array = e.arrays[value]
    others = [v.name for v in variables if isinstance(v, Array) and v is not variable]
    if array.name in others:
        copy = e.declare(value, array.lane)
        e.fill(copy, value)
        e.keep(value, copy)


def _declare_seen(e: Emitter, when: Value | None) -> Variable | None:
    if when is None:
        return None
    if not when.shape:
        name = e.names.fresh("seen")
        e.line(f"int {name} = 0;")
        return name
    array = e.declare(when, e.lane_of(when), "seen")
    zero = e.dialect.widen(Ex("0", boolean)) if array.lane is not None else "0"
    e.nest(array.registers, lambda i: e.line(f"{e.element(array, i)} = {zero};"))
    return array


def _enter_rule(
    e: Emitter, variables: Sequence[Variable], rule: Block, news: Sequence[Value]
) -> None:
    """The rule's parameters stand for what was combined so far and for the chunk's values."""
    count = len(variables)
    for param, variable in zip(rule.params[:count], variables, strict=True):
        bind(e, param, variable)
    for param, new in zip(rule.params[count:], news, strict=True):
        if new.shape:
            e.arrays[param] = e.arrays[new]
            e.borrowed.add(param)
        else:
            e.scalars[param] = e.scalar(new)
            affine = e.affine.of(new)
            if affine is not None:
                e.affine.atoms[param] = affine.base


def _merge(
    e: Emitter, first: str, variables: Sequence[Variable], rule: Block, news: Sequence[Value]
) -> None:
    with e.scope(first):
        for variable, new in zip(variables, news, strict=True):
            assign(e, variable, new)
    with e.scope("else"):
        _enter_rule(e, variables, rule, news)
        e.block(rule)
        assign_all(e, variables, rule.params[: len(variables)], rule.results)


def _merge_selected(
    e: Emitter, first: Ex, variables: Sequence[Variable], rule: Block, news: Sequence[Value]
) -> None:
    """As ``_merge``, without a branch: what is copied at first is merged too and then not taken."""
    with e.scope(""):
        _enter_rule(e, variables, rule, news)
        e.block(rule)
        _settle(e, rule.results)
        scalars: list[tuple[str, str]] = []
        for variable, new, merged in zip(variables, news, rule.results, strict=True):
            if isinstance(variable, str):
                name = e.names.fresh("merged")
                chosen = e.dialect.select(first, e.scalar(new), e.scalar(merged))
                e.line(f"const {e.dialect.ctype(new.dtype)} {name} = {bare(chosen.code)};")
                scalars.append((variable, name))
            else:
                _part(e, merged, variable, variables)
        for variable, new, merged in zip(variables, news, rule.results, strict=True):
            if isinstance(variable, Array):
                _choose(e, variable, first, new, merged)
        for variable, name in scalars:
            e.line(f"{variable} = {name};")


def _choose(e: Emitter, variable: Array, first: Ex, new: Value, merged: Value) -> None:
    """Fill ``variable`` with ``new`` if it is the first, else with ``merged``."""

    def body(index: Index) -> None:
        copied, joined = (e.pull(value, index, variable.lane) for value in (new, merged))
        chosen = e.dialect.select(first, copied, joined)
        e.line(f"{e.element(variable, index)} = {bare(chosen.code)};")

    e.nest(variable.registers, body)


def _merge_where(
    e: Emitter,
    when: Value,
    seen: Array,
    variables: Sequence[Variable],
    rule: Block,
    news: Sequence[Value],
) -> None:
    with e.scope(""):
        _enter_rule(e, variables, rule, news)
        e.block(rule)
        _settle(e, rule.results)
        for merged, variable in zip(rule.results, variables, strict=True):
            _part(e, merged, variable, variables)
        flag = Value(when.type, "seen")
        bind(e, flag, seen)
        for variable, new, merged in zip(variables, news, rule.results, strict=True):
            assert isinstance(variable, Array), "a tile `when` merges tiles"

            def body(
                index: Index, variable: Array = variable, new: Value = new, merged: Value = merged
            ) -> None:
                rank = len(when.shape)
                lane = variable.lane if variable.lane is not None and variable.lane < rank else None
                active = e.pull(when, index[:rank], lane)
                started = e.pull(flag, index[:rank], lane)
                joined, copied = (e.pull(v, index, variable.lane) for v in (merged, new))
                target = Ex(e.element(variable, index), new.dtype, variable.lane is not None)
                value = e.dialect.select(started, joined, copied)
                e.line(f"{target.code} = {bare(e.dialect.select(active, value, target).code)};")

            e.nest(variable.registers, body)

    def mark(index: Index) -> None:
        ex = e.pull(when, index, seen.lane)
        code = e.dialect.widen(ex) if seen.lane is not None else ex.code
        e.line(f"{e.element(seen, index)} |= {code};")

    e.nest(seen.registers, mark)


EMITS.update({"for": emit_for, "if": emit_if, "walk": emit_walk})
