"""The builder's type rules: result types, implicit broadcasting, literals, equal operations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ferro.dsl.builder import Builder
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.ir import Pointer, Quantised, Value, walk
from ferro.dsl.static import Static
from ferro.dsl.types import (
    DType,
    TileType,
    boolean,
    f16,
    f32,
    i8,
    i16,
    i32,
    u32,
)

N = ("name", "N")
X = Pointer("x", f32, (N, N), "in")
H = Pointer("h", f16, (N,), "in")
Y = Pointer("y", f32, (N, N), "out")
Z = Pointer("z", i32, (N,), "inout")
W = Quantised("w", "q8", N, N)
A = Quantised("a", "a8", N, N)
Q = Quantised("q", "a8", N, N, "out")


@pytest.fixture
def b() -> Builder:
    return Builder()


def tile(b: Builder, *shape: int, dtype: DType = f32) -> Value:
    value = Value(TileType(dtype, shape))
    b.block.params.append(value)
    return value


def names(b: Builder) -> list[str]:
    return [op.name for op in walk(b.block)]


def refused(code: str, build: Callable[[], object]) -> None:
    with pytest.raises(CompileError) as caught:
        build()
    assert caught.value.diagnostics[0].code == code


# literals


def test_a_literal_takes_the_dtype_of_the_tile(b: Builder) -> None:
    assert b.add(tile(b, 4), 1).type == TileType(f32, (4,))
    assert b.add(1, tile(b, 4, dtype=u32)).type == TileType(u32, (4,))
    assert b.block.ops[0].attrs == {"value": 1.0}


def test_float_literals_are_rounded_once_to_f32(b: Builder) -> None:
    assert b.definitions[b.const(0.1, f32).id].attrs["value"] == pytest.approx(0.1, rel=1e-7)
    assert b.definitions[b.const(0.1, f32).id].attrs["value"] != 0.1


@pytest.mark.parametrize(
    ("value", "dtype", "code"),
    [
        (2**24 + 1, f32, "FER203"),
        (1.0, i32, "FER202"),
        (2**31, i32, "FER203"),
        (-1, u32, "FER203"),
        (128, i8, "FER203"),
        (True, i32, "FER202"),
        (1, boolean, "FER202"),
        (Static("a"), f32, "FER202"),
    ],
)
def test_literals_that_do_not_fit(b: Builder, value: int, dtype: DType, code: str) -> None:
    refused(code, lambda: b.const(value, dtype))


@pytest.mark.parametrize(
    ("value", "dtype"), [(2**24, f32), (2**32 - 1, u32), (-(2**31), i32), (-128, i8), (65504, f16)]
)
def test_literals_that_just_fit(b: Builder, value: int, dtype: DType) -> None:
    assert b.definitions[b.const(value, dtype).id].attrs["value"] == value


def test_literals_among_themselves(b: Builder) -> None:
    assert b.add(1, 2).dtype is i32
    assert b.add(1, 2.5).dtype is f32
    assert b.where(True, 1, 0).dtype is i32


def test_schedule_derived_literals_are_marked(b: Builder) -> None:
    plain, marked = b.const(64, i32), b.const(Static(64, schedule=True), i32)
    assert plain is not marked
    assert "schedule" not in b.definitions[plain.id].attrs
    assert b.definitions[marked.id].attrs["schedule"] is True
    grown = b.zeros([Static(4), Static(64, schedule=True)])
    assert b.definitions[grown.id].attrs["schedule_axes"] == (1,)


# equal operations


def test_equal_pure_operations_are_one_value(b: Builder) -> None:
    k, n = tile(b, 8, dtype=i32), b.scalar("N", i32)
    assert b.lt(k, n) is b.lt(k, n)
    assert b.add(k, 1) is b.add(k, 1)
    assert b.add(k, 1) is not b.add(k, 2)
    assert b.const(0.0, f32) is not b.const(-0.0, f32)
    assert b.const(math.nan, f32) is b.const(math.nan, f32)
    assert b.const(1, i32) is not b.const(1, u32)


def test_equal_operations_are_found_in_enclosing_blocks_only(b: Builder) -> None:
    k = tile(b, 8, dtype=i32)
    outer = b.add(k, 1)
    inner: list[Value] = []

    def body(counter: Value, carried: tuple[Value, ...]) -> list[Value]:
        assert b.add(k, 1) is outer
        inner.append(b.mul(k, 3))
        return []

    b.for_(0, 4, 1, [], body)
    assert b.mul(k, 3) is not inner[0]


def test_loads_are_never_merged(b: Builder) -> None:
    k = tile(b, 8, dtype=i32)
    assert b.load(Z, [k]) is not b.load(Z, [k])


# shapes


def test_elementwise_operands_are_expanded_and_broadcast(b: Builder) -> None:
    result = b.mul(tile(b, 4, 1), tile(b, 8))
    assert result.shape == (4, 8)
    assert names(b) == ["broadcast", "expand", "broadcast", "mul"]
    assert all(a.shape == (4, 8) for a in b.block.ops[-1].args)


def test_shapes_that_do_not_broadcast(b: Builder) -> None:
    refused("FER212", lambda: b.add(tile(b, 4), tile(b, 8)))
    refused("FER212", lambda: b.add(tile(b, 4, 2), tile(b, 4)))
    refused("FER211", lambda: b.broadcast(tile(b, 4, 2), (4, 1)))


def test_arange_carries_its_label(b: Builder) -> None:
    b.label = "k"
    value = b.arange(2, 10)
    assert value.type == TileType(i32, (8,))
    assert b.definitions[value.id].attrs == {"start": 2, "size": 8, "axis": "k"}
    assert b.arange(2, 10, axis="m") is not value
    refused("FER210", lambda: b.arange(3, 3))


def test_reshape_transpose_split_join(b: Builder) -> None:
    x = tile(b, 2, 12)
    assert b.reshape(x, [4, -1]).shape == (4, 6)
    assert b.reshape(x, [2, 12]) is x
    assert b.transpose(x).shape == (12, 2)
    assert b.transpose(tile(b, 2, 3, 4), [2, 0, 1]).shape == (4, 2, 3)
    assert b.transpose(x, [0, 1]) is x
    low, high = b.split(x, 1, "pairs")
    assert low.shape == high.shape == (2, 6)
    assert b.join(low, high, 0).shape == (4, 6)
    refused("FER213", lambda: b.reshape(x, [5, -1]))
    refused("FER214", lambda: b.transpose(x, [0]))
    refused("FER215", lambda: b.split(tile(b, 3)))
    refused("FER216", lambda: b.join(low, x))
    refused("FER217", lambda: b.expand(x, 4))
    refused("FER218", lambda: b.split(x, 1, "odd"))


# elementwise


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_give_bool(b: Builder, name: str) -> None:
    assert b.binary(name, tile(b, 4), 0.0).type == TileType(boolean, (4,))


def test_dtypes_never_mix(b: Builder) -> None:
    refused("FER201", lambda: b.add(tile(b, 4), tile(b, 4, dtype=i32)))
    refused("FER201", lambda: b.where(True, tile(b, 4), tile(b, 4, dtype=i32)))
    refused("FER201", lambda: b.shl(tile(b, dtype=u32), tile(b, dtype=i32)))


@pytest.mark.parametrize("dtype", [f16, i8, i16, boolean])
def test_storage_types_have_no_arithmetic(b: Builder, dtype: DType) -> None:
    x = tile(b, 4, dtype=dtype)
    refused("FER205", lambda: b.add(x, x))
    refused("FER205", lambda: b.neg(x))
    refused("FER205", lambda: b.lt(x, x))


def test_division_is_truncating_on_integers_and_a_call_on_f32(b: Builder) -> None:
    b.div(tile(b, dtype=i32), 3)
    assert names(b)[-1] == "div"
    b.div(tile(b), 3)
    assert names(b)[-1] == "call"
    assert b.block.ops[-1].attrs == {"function": "div"}


def test_masks_of_integers_and_bools(b: Builder) -> None:
    assert b.and_(tile(b, 4, dtype=boolean), tile(b, 4, dtype=boolean)).dtype is boolean
    assert b.not_(tile(b, 4, dtype=u32)).dtype is u32
    refused("FER205", lambda: b.or_(tile(b), tile(b)))
    refused("FER206", lambda: b.where(tile(b, dtype=i32), 1, 0))


def test_casts(b: Builder) -> None:
    x = tile(b, 4)
    assert b.cast(x, f32) is x
    assert b.cast(x, i8).type == TileType(i8, (4,))
    assert b.cast(tile(b, 4, dtype=boolean), i32).dtype is i32
    assert b.bitcast(x, u32).dtype is u32
    refused("FER204", lambda: b.cast(x, boolean))
    refused("FER204", lambda: b.bitcast(x, i16))


def test_clamp_and_cdiv_are_made_of_primitives(b: Builder) -> None:
    b.clamp(tile(b, 4), 0.0, 1.0)
    assert [n for n in names(b) if n in ("min", "max")] == ["max", "min"]
    b.cdiv(tile(b, dtype=i32), 32)
    assert [n for n in names(b) if n != "const"][-2:] == ["add", "div"]


# memory


def test_load_types_and_operands(b: Builder) -> None:
    rows, k = tile(b, 4, 1, dtype=i32), tile(b, 8, dtype=i32)
    value = b.load(X, [rows, k], b.lt(k, 3), 0.0)
    op = b.definitions[value.id]
    assert value.type == TileType(f32, (4, 8))
    assert op.attrs == {"buffer": "x", "rank": 2, "masked": True, "other": True}
    assert [a.type for a in op.args] == [
        TileType(i32, (4, 8)),
        TileType(i32, (4, 8)),
        TileType(boolean, (4, 8)),
        TileType(f32, (4, 8)),
    ]
    assert b.load(H, [k]).dtype is f16
    assert b.load(W, [0, k]).dtype is f32
    assert b.load(X, [0, 0]).shape == ()


def test_load_and_store_refusals(b: Builder) -> None:
    k = tile(b, 8, dtype=i32)
    refused("FER302", lambda: b.load(X, [0, k], other=0.0))
    refused("FER306", lambda: b.load(Y, [0, k]))
    refused("FER304", lambda: b.load(A, [0, k]))
    refused("FER307", lambda: b.load(X, [k]))
    refused("FER308", lambda: b.load(X, [0, tile(b, 8)]))
    refused("FER308", lambda: b.load(X, [0, tile(b, 8, dtype=u32)]))
    refused("FER310", lambda: b.load(X, [0, 0], mask=b.lt(k, 3)))
    refused("FER309", lambda: b.load(H, [k], mask=b.lt(k, 3), other=tile(b, 8)))
    refused("FER303", lambda: b.store(X, [0, k], 0.0))
    refused("FER304", lambda: b.store(Q, [0, k], 0.0))
    refused("FER309", lambda: b.store(Y, [0, k], k))
    refused("FER310", lambda: b.store(Y, [0, 0], tile(b, 8)))
    assert names(b).count("store") == 0


def test_blocks(b: Builder) -> None:
    rows = tile(b, 4, dtype=i32)
    q, scale = b.load_block(W, rows, 0, b.lt(rows, 3))
    assert (q.type, scale.type) == (TileType(i8, (4, 32)), TileType(f32, (4,)))
    b.store_block(Q, rows, 0, q, scale)
    assert b.block.ops[-1].attrs == {"buffer": "q", "masked": False}
    refused("FER304", lambda: b.load_block(X, rows, 0))
    refused("FER306", lambda: b.load_block(Q, rows, 0))
    refused("FER303", lambda: b.store_block(W, rows, 0, q, scale))
    refused("FER305", lambda: b.store_block(Q, rows, 0, scale, scale))
    refused("FER311", lambda: b.load_block(W, b.expand(rows, 1), 0))
    refused("FER311", lambda: b.load_block(W, rows, rows))


def test_a_block_of_one_row(b: Builder) -> None:
    row = b.program_id(0)
    q, scale = b.load_block(W, row, 0, b.lt(row, 3))
    assert (q.type, scale.type) == (TileType(i8, (32,)), TileType(f32))
    b.store_block(Q, row, 0, q, scale)
    stored = b.block.ops[-1]
    assert [v.shape for v in stored.args] == [(1,), (), (1, 32), (1,)]
    refused("FER305", lambda: b.store_block(Q, row, 0, b.expand(q, 0), scale))
    refused("FER310", lambda: b.load_block(W, row, 0, b.lt(tile(b, 4, dtype=i32), 3)))


# across elements


def test_reductions(b: Builder) -> None:
    x = tile(b, 4, 64)
    assert b.reduce("sum", x).type == TileType(f32, (4,))
    assert b.reduce("argmax", x, 0).type == TileType(i32, (64,))
    assert b.reduce("max", x, mask=b.lt(tile(b, 64), 0.0)).type == TileType(f32, (4,))
    refused("FER205", lambda: b.reduce("sum", tile(b, 4, dtype=boolean)))
    refused("FER220", lambda: b.reduce("sum", tile(b, 4097)))
    refused("FER217", lambda: b.reduce("sum", tile(b)))
    refused("FER211", lambda: b.reduce("sum", tile(b, 4), mask=tile(b, 2, 4, dtype=boolean)))


def test_streaming_sums(b: Builder) -> None:
    state = b.partials([4])
    assert state.type == TileType(f32, (4, 32))
    assert b.accumulate(state, tile(b, 4, 64)).type == state.type
    assert b.accumulate(state, tile(b, 96, 4), axis=0).type == state.type
    assert b.finish(state).type == TileType(f32, (4,))
    refused("FER221", lambda: b.accumulate(state, tile(b, 4, 33)))
    refused("FER222", lambda: b.accumulate(state, tile(b, 64)))
    refused("FER223", lambda: b.accumulate(state, tile(b, 4, 64, dtype=i32)))
    refused("FER222", lambda: b.finish(tile(b, 64)))


def test_products(b: Builder) -> None:
    assert b.dot(tile(b, 4, 8), tile(b, 8, 2)).type == TileType(f32, (4, 2))
    a, c = tile(b, 4, 32, dtype=i8), tile(b, 32, 16, dtype=i8)
    assert b.dot_i8(a, c).type == TileType(i32, (4, 16))
    refused("FER224", lambda: b.dot(tile(b, 4, 8), tile(b, 4, 8)))
    refused("FER224", lambda: b.dot(tile(b, 4, 8), tile(b, 8, 2), tile(b, 2)))
    refused("FER223", lambda: b.dot(a, c))
    refused("FER223", lambda: b.dot_i8(tile(b, 4, 32), c))


def test_quantize_gives_values_and_one_scale_a_block(b: Builder) -> None:
    q, scale = b.quantize_i8(tile(b, 4, 3, 32))
    assert (q.type, scale.type) == (TileType(i8, (4, 3, 32)), TileType(f32, (4, 3)))
    refused("FER225", lambda: b.quantize_i8(tile(b, 64)))


# control


def test_a_loop_carries_values_of_one_type(b: Builder) -> None:
    (total,) = b.for_(0, 8, 2, [b.zeros([4])], lambda i, c: [b.add(c[0], 1.0)])
    assert total.type == TileType(f32, (4,))
    assert b.block.ops[-1].blocks[0].params[0].type == TileType(i32)
    refused("FER401", lambda: b.for_(0, 8, 1, [b.const(0.0, f32)], lambda i, c: [b.zeros([4])]))
    refused("FER408", lambda: b.for_(0, 1.5, 1, [], lambda i, c: []))


def test_the_sides_of_a_branch_agree(b: Builder) -> None:
    cond = tile(b, dtype=boolean)
    (chosen,) = b.if_(cond, lambda: [b.const(1, i32)], lambda: [b.const(2, i32)])
    assert chosen.type == TileType(i32)
    refused("FER407", lambda: b.if_(cond, lambda: [b.const(1, i32)], lambda: [b.const(2.0, f32)]))
    refused("FER402", lambda: b.if_(tile(b, 2, dtype=boolean), list, list))
    refused("FER206", lambda: b.if_(tile(b, dtype=i32), list, list))


def test_a_walk_has_a_body_a_rule_and_a_value_for_nothing(b: Builder) -> None:
    x = tile(b, 4)
    (total,) = b.walk(
        b.scalar("N", i32),
        512,
        lambda start, stop: ([b.add(x, b.cast(start, f32))], None),
        lambda old, new: [b.add(old[0], new[0])],
        [0.0],
    )
    op = b.definitions[total.id]
    assert op.attrs == {"size": 512, "when": False}
    assert [len(block.params) for block in op.blocks] == [2, 2]
    assert op.args[1].shape == (4,)


def test_walk_refusals(b: Builder) -> None:
    x, cond = tile(b, 4), tile(b, 8, dtype=boolean)

    def build(rule=lambda old, new: list(new), empty=(0.0,), when=None) -> object:
        return b.walk(8, 4, lambda start, stop: ([x], when), rule, list(empty))

    build(when=tile(b, 4, dtype=boolean))
    build(when=tile(b, dtype=boolean))
    refused("FER403", lambda: build(rule=lambda old, new: []))
    refused("FER404", lambda: build(rule=lambda old, new: [b.load(Y2, [tile(b, 4, dtype=i32)])]))
    refused("FER405", lambda: build(empty=(0.0, 0.0)))
    refused("FER405", lambda: build(empty=(x,)))
    refused("FER406", lambda: build(when=cond))


Y2 = Pointer("y2", f32, (N,), "inout")
