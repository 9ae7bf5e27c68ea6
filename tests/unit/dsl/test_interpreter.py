"""The interpreter on kernels made with the builder: control flow, memory, modes, errors."""

from __future__ import annotations

import bdb
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ferro.dsl import exact, ir
from ferro.dsl.builder import Builder
from ferro.dsl.interpreter import ExecutionError, OutOfRangeError, interpret, programs
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.quantised import A8, Q8
from ferro.dsl.types import DType, Span, f16, f32, i8, i32, u32

F = np.float32
K, M, N = ("name", "K"), ("name", "M"), ("name", "N")
HERE = Span(__file__, 3, 1, 3, 9)


def pointer(name: str, dtype: DType = f32, access: str = "in", rank: int = 1) -> ir.Pointer:
    return ir.Pointer(name, dtype, (N,) * rank, access)


def kernel(
    buffers: Sequence[ir.Buffer], body: Callable[..., None], scalars: str = "", grid: int = 1
) -> ir.Kernel:
    """A kernel of i32 ``scalars``; ``body`` gets the builder, the buffers and the scalars."""
    block = ir.Block()
    b = Builder(block)
    b.span = HERE
    values = [b.scalar(name, i32) for name in scalars]
    body(b, *buffers, *values)
    parameters = tuple(ir.Scalar(n, v) for n, v in zip(scalars, values, strict=True))
    extents = (("const", 1),) * grid
    return ir.Kernel(
        "test", tuple(buffers), parameters, {}, frozenset(), extents, block, {}, __file__, ""
    )


def run(
    made: ir.Kernel,
    grid: tuple[int, ...] = (1,),
    scalars: dict[str, int] | None = None,
    **buffers: Any,
) -> None:
    """Interpret in all orders; every order must leave the same bits."""
    results = []
    for order in ({}, {"order": "one_by_one"}, {"order": "one_by_one", "seed": 5}):
        copies = {n: b.copy() if isinstance(b, np.ndarray) else b for n, b in buffers.items()}
        interpret(made, copies, scalars or {}, grid, **order)
        results.append({n: b for n, b in copies.items() if isinstance(b, np.ndarray)})
    for result in results[1:]:
        assert all(result[n].tobytes() == b.tobytes() for n, b in results[0].items())
    for name, array in results[0].items():
        buffers[name][...] = array


def tile(function: Callable[..., ir.Value], x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``function(builder, tile of x)`` stored to an array of ``shape``."""
    types = {np.dtype(F): f32, np.dtype(np.int32): i32, np.dtype(np.uint32): u32}

    def body(b: Builder, source: ir.Pointer, target: ir.Pointer) -> None:
        value = b.load(source, index(b, x.shape))
        b.store(target, index(b, shape), function(b, value))

    probe: list[DType] = []

    def typed(b: Builder, source: ir.Pointer) -> None:
        probe.append(function(b, b.load(source, index(b, x.shape))).dtype)

    source = pointer("x", types[x.dtype], rank=x.ndim)
    kernel([source], typed)
    y = np.zeros(shape, probe[0].numpy)
    run(kernel([source, pointer("y", probe[0], "out", len(shape))], body), x=x, y=y)
    return y


def index(b: Builder, shape: tuple[int, ...]) -> list[ir.Value]:
    out = []
    for axis, extent in enumerate(shape):
        i = b.arange(0, extent)
        for other in range(len(shape)):
            if other != axis:
                i = b.expand(i, 0 if other < axis else i.type.rank)
        out.append(i)
    return out


# ---------------------------------------------------------------------------- whole kernels


def matmul(bm: int, bn: int) -> ir.Kernel:
    w, x = ir.Quantised("w", "q8", N, K), ir.Quantised("x", "a8", M, K)
    y = ir.Pointer("y", f32, (M, N), "out")

    def body(b: Builder, w: Any, x: Any, y: Any, n_: Any, m_: Any, k_: Any) -> None:
        n = b.add(b.mul(b.program_id(0), bn), b.arange(0, bn))
        m = b.add(b.mul(b.program_id(1), bm), b.arange(0, bm))

        def chunk(start: ir.Value, stop: ir.Value) -> Any:
            def turn(block: ir.Value, carried: Any) -> list[ir.Value]:
                wq, ws = b.load_block(w, n, block, b.lt(n, n_))
                xq, xs = b.load_block(x, m, block, b.lt(m, m_))
                dot = b.cast(b.dot_i8(xq, b.transpose(wq)), f32)
                return [b.fma(dot, b.mul(b.expand(xs, 1), b.expand(ws, 0)), carried[0])]

            first, last = b.div(start, 32), b.cdiv(stop, 32)
            return b.for_(first, last, 1, [b.zeros([bm, bn])], turn), None

        (acc,) = b.walk(k_, 512, chunk, lambda old, new: [b.add(old[0], new[0])], [0.0])
        row, column = b.expand(m, 1), b.expand(n, 0)
        b.store(y, [row, column], acc, b.and_(b.lt(row, m_), b.lt(column, n_)))

    return kernel([w, x, y], body, "NMK", grid=2)


def matmul_by_blocks(w: Q8, x: A8) -> np.ndarray:
    total = np.zeros((x.rows, w.rows), F)
    for start in range(0, w.q.shape[1], 512):
        acc = np.zeros((x.rows, w.rows), F)
        for k in range(start, min(start + 512, w.q.shape[1]), 32):
            dot = x.q[:, k : k + 32].astype(np.int32) @ w.q[:, k : k + 32].astype(np.int32).T
            scale = x.scale[:, k // 32, None] * w.scale[None, :, k // 32].astype(F)
            acc = exact.fma32(dot.astype(F), scale, acc)
        total = acc if start == 0 else total + acc
    return total


@pytest.mark.parametrize(("bm", "bn"), [(1, 16), (4, 8)])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 7), (5, 37, 1100), (2, 16, 512)])
def test_a_quantised_product_for_all_tiles_and_orders(bm, bn, m, n, k):
    rng = np.random.default_rng(0)
    w = Q8.quantize(rng.standard_normal((n, k)).astype(F))
    x = A8.quantize(rng.standard_normal((m, k)).astype(F))
    y = np.zeros((m, n), F)
    run(matmul(bm, bn), (-(-n // bn), -(-m // bm)), {"N": n, "M": m, "K": k}, w=w, x=x, y=y)
    assert y.tobytes() == matmul_by_blocks(w, x).tobytes()


def test_a_budget_that_cuts_the_grid_changes_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    w, x = Q8.quantize(rng.standard_normal((70, 64))), A8.quantize(rng.standard_normal((9, 64)))
    made, whole, cut = matmul(2, 16), np.zeros((9, 70), F), np.zeros((9, 70), F)
    scalars, grid = {"N": 70, "M": 9, "K": 64}, (5, 5)
    assert len(list(programs.spaces(made, grid))) == 1
    interpret(made, {"w": w, "x": x, "y": whole}, scalars, grid)
    monkeypatch.setattr(programs, "_BUDGET", 600)
    boxes = list(programs.spaces(made, grid))
    assert len(boxes) > 4 and sum(int(np.prod(s.shape)) for s in boxes) == 25
    interpret(made, {"w": w, "x": x, "y": cut}, scalars, grid)
    assert whole.tobytes() == cut.tobytes()


def test_values_know_the_grid_axes_they_depend_on():
    sizes = programs.footprint(matmul(2, 16))
    assert sizes[frozenset({0})] == 16 * 32  # a tile of weights belongs to grid axis 0 alone
    assert sizes[frozenset({1})] == 2 * 32
    assert sizes[frozenset({0, 1})] == 2 * 16


def test_an_empty_grid_runs_nothing():
    y = np.ones(3, F)
    made = kernel([pointer("y", access="out")], lambda b, y: b.store(y, [b.arange(0, 64)], 0.0))
    interpret(made, {"y": y}, {}, (0,))
    assert y.tolist() == [1, 1, 1]


def test_an_unknown_order_is_refused():
    made = kernel([], lambda b: None)
    with pytest.raises(ValueError, match="one_by_one"):
        interpret(made, {}, {}, (1,), order="backwards")


# ------------------------------------------------------------------------------------- memory


def masked_copy(dtype: DType, other: int | float | None) -> ir.Kernel:
    def body(b: Builder, x: Any, y: Any, n: Any) -> None:
        i = b.arange(0, 8)
        b.store(y, [i], b.load(x, [i], b.lt(i, n), other))

    return kernel([pointer("x", dtype), pointer("y", dtype, "out")], body, "n")


def test_masked_lanes_without_other_are_poison():
    y = np.zeros(8, F)
    run(masked_copy(f32, None), scalars={"n": 3}, x=np.arange(3, dtype=F), y=y)
    assert y[:3].tolist() == [0, 1, 2] and np.isnan(y[3:]).all()
    for dtype, poison in ((i32, 0x7F7F7F7F), (u32, 0x7F7F7F7F), (i8, 0x7F)):
        z = np.zeros(8, dtype.numpy)
        run(masked_copy(dtype, None), scalars={"n": 3}, x=np.ones(3, dtype.numpy), y=z)
        assert z.tolist() == [1] * 3 + [poison] * 5


def test_masked_lanes_get_other():
    y = np.zeros(8, F)
    run(masked_copy(f32, -2.5), scalars={"n": 3}, x=np.ones(3, F), y=y)
    assert y.tolist() == [1] * 3 + [-2.5] * 5
    run(masked_copy(f32, -2.5), scalars={"n": 0}, x=np.ones(0, F), y=y)
    assert y.tolist() == [-2.5] * 8


def test_a_read_past_the_end_names_everything():
    with pytest.raises(OutOfRangeError) as caught:
        run(masked_copy(f32, None), scalars={"n": 4}, x=np.ones(3, F), y=np.zeros(8, F))
    text = str(caught.value)
    assert "`load` out of range: index 3 on axis 0 of `x`, whose extent is 3" in text
    assert f"{__file__}:3:1" in text
    assert isinstance(caught.value, IndexError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


@pytest.mark.parametrize(("at", "axis", "bad"), [((-1, 0), 0, -1), ((0, 5), 1, 5), ((4, 0), 0, 4)])
def test_a_write_out_of_range_names_the_axis(at, axis, bad):
    def body(b: Builder, y: Any) -> None:
        b.store(y, [b.value(at[0]), b.value(at[1])], 1.0)

    y = np.zeros((4, 5), F)
    with pytest.raises(OutOfRangeError, match=f"index {bad} on axis {axis} of `y`, whose extent"):
        run(kernel([pointer("y", access="out", rank=2)], body), y=y)
    assert not y.any()


def test_a_block_out_of_range():
    def body(b: Builder, w: Any, y: Any, k: Any) -> None:
        _, scale = b.load_block(w, b.arange(0, 2), k)
        b.store(y, [b.arange(0, 2)], scale)

    made = kernel([ir.Quantised("w", "q8", N, K), pointer("y", access="out")], body, "k")
    w = Q8.quantize(np.ones((2, 40), F))
    run(made, scalars={"k": 1}, w=w, y=np.zeros(2, F))
    with pytest.raises(OutOfRangeError, match="block 2 on axis 1 of `w`, whose extent is 2"):
        run(made, scalars={"k": 2}, w=w, y=np.zeros(2, F))


def test_arrays_keep_what_is_not_written():
    def body(b: Builder, y: Any) -> None:
        i = b.arange(0, 4)
        b.store(y, [i], b.mul(b.load(y, [i]), 2.0), b.lt(i, 2))

    y = np.array([1, 2, 3, 4], F)
    run(kernel([pointer("y", access="inout")], body), y=y)
    assert y.tolist() == [2, 4, 3, 4]


def test_an_array_with_strides_is_refused():
    with pytest.raises(ValueError, match="`y` is not contiguous"):
        interpret(kernel([pointer("y")], lambda b, y: None), {"y": np.zeros(8)[::2]}, {}, (1,))


def test_gather_and_scatter():
    def body(b: Builder, i: Any, x: Any, y: Any) -> None:
        at = b.load(i, [b.arange(0, 4)])
        b.store(y, [b.sub(3, at)], b.load(x, [at]))

    y = np.zeros(4, F)
    made = kernel([pointer("i", i32), pointer("x"), pointer("y", access="out")], body)
    run(made, i=np.array([2, 0, 3, 1], np.int32), x=F([10, 11, 12, 13]), y=y)
    assert y.tolist() == [13, 12, 11, 10]


def test_halves_are_stored_and_loaded():
    def body(b: Builder, x: Any, h: Any, y: Any) -> None:
        i = b.arange(0, 3)
        b.store(h, [i], b.cast(b.load(x, [i]), f16))
        b.store(y, [i], b.cast(b.load(h, [i]), f32))

    buffers = [pointer("x"), pointer("h", f16, "inout"), pointer("y", access="out")]
    x, h, y = F([0.1, 65504, 1e-8]), np.zeros(3, np.float16), np.zeros(3, F)
    run(kernel(buffers, body), x=x, h=h, y=y)
    assert h.tolist() == x.astype(np.float16).tolist() and y.tolist() == h.astype(F).tolist()


def test_elements_of_a_q8_matrix_are_dequantised():
    def body(b: Builder, w: Any, y: Any) -> None:
        row, column = b.expand(b.arange(0, 3), 1), b.expand(b.arange(0, 40), 0)
        b.store(y, [row, column], b.load(w, [row, column]))

    w = Q8.quantize(np.random.default_rng(2).standard_normal((3, 40)))
    y = np.zeros((3, 40), F)
    run(kernel([ir.Quantised("w", "q8", N, K), pointer("y", access="out", rank=2)], body), w=w, y=y)
    assert y.tobytes() == w.dequantize().tobytes()


def quantiser() -> ir.Kernel:
    def body(b: Builder, x: Any, y: Any, m: Any) -> None:
        row = b.add(b.mul(b.program_id(0), 2), b.arange(0, 2))
        column = b.add(b.mul(b.program_id(1), 32), b.arange(0, 32))
        inside = b.lt(row, m)
        at = [b.expand(row, 1), b.expand(column, 0)]
        values = b.load(x, at, b.expand(inside, 1), 0.0)
        amax = b.reduce("max", b.abs(values), 1)
        q = b.cast(b.rint(b.mul(values, b.expand(b.bitcast(_inverse(b, amax), f32), 1))), i8)
        b.store_block(y, row, b.program_id(1), q, amax, inside)

    return kernel([pointer("x", rank=2), ir.Quantised("y", "a8", M, K, "out")], body, "M", grid=2)


def _inverse(b: Builder, amax: ir.Value) -> ir.Value:
    """The bits of a power of two that brings ``amax`` below 128."""
    exponent = b.shr(b.bitcast(amax, i32), 23)
    return b.shl(b.sub(127 + 127 + 6, exponent), 23)


def test_blocks_are_stored_with_their_sums():
    x = np.random.default_rng(3).standard_normal((5, 64)).astype(F)
    results = []
    for order in ("together", "one_by_one"):
        y = A8.empty(5, 64)
        interpret(quantiser(), {"x": x, "y": y}, {"M": 5}, (3, 2), order=order)
        results.append(y)
    y, z = results
    assert (y.q == z.q).all() and (y.sums == z.sums).all()
    amax = np.abs(x.reshape(5, 2, 32)).max(axis=-1)
    assert y.scale.tobytes() == amax.tobytes()
    factor = 2.0 ** (6 - np.floor(np.log2(amax)))
    assert (y.q.reshape(5, 2, 32) == np.rint(x.reshape(5, 2, 32) * factor[..., None])).all()
    assert (y.sums == y.q.reshape(5, 2, 32).astype(np.int32).sum(axis=-1)).all()


# ------------------------------------------------------------------------------------ control


def test_a_loop_whose_bounds_differ_between_programs():
    def body(b: Builder, bounds: Any, y: Any) -> None:
        p = b.program_id(0)
        start, stop = b.load(bounds, [p, 0]), b.load(bounds, [p, 1])
        total, turns = b.for_(start, stop, 3, [b.value(0), b.value(0)],
                              lambda i, c: [b.add(c[0], i), b.add(c[1], 1)])  # fmt: skip
        b.store(y, [p, 0], total)
        b.store(y, [p, 1], turns)

    bounds = np.array([[0, 10], [5, 5], [-7, 2], [8, 1], [0, 1]], np.int32)
    y = np.full((5, 2), -9, np.int32)
    buffers = [pointer("bounds", i32, rank=2), pointer("y", i32, "out", 2)]
    run(kernel(buffers, body), (5,), bounds=bounds, y=y)
    expected = [list(range(a, z, 3)) for a, z in bounds.tolist()]
    assert y.tolist() == [[sum(e), len(e)] for e in expected]


def test_stores_in_a_loop_stay_within_each_programs_turns():
    def body(b: Builder, y: Any) -> None:
        p = b.program_id(0)

        def turn(i: ir.Value, carried: Any) -> list[ir.Value]:
            b.store(y, [p, i], b.add(b.mul(p, 10), i))
            return []

        b.for_(0, p, 1, [], turn)

    y = np.zeros((4, 3), np.int32)  # program 4 would write outside
    run(kernel([pointer("y", i32, "out", 2)], body), (4,), y=y)
    assert y.tolist() == [[0, 0, 0], [10, 0, 0], [20, 21, 0], [30, 31, 32]]


def test_a_step_must_be_positive():
    def body(b: Builder, s: Any) -> None:
        b.for_(0, 3, s, [], lambda i, c: [])

    run(kernel([], body, "s"), scalars={"s": 1})
    with pytest.raises(ExecutionError, match="the step of a range is 0"):
        run(kernel([], body, "s"), scalars={"s": 0})


def test_a_branch_that_differs_between_programs():
    def body(b: Builder, y: Any) -> None:
        p = b.program_id(0)
        odd = b.eq(b.and_(p, 1), 1)

        def then() -> list[ir.Value]:
            b.store(y, [b.sub(p, 1), 0], b.mul(p, 100))  # outside for program 0
            return [b.add(p, 1)]

        (value,) = b.if_(odd, then, lambda: [b.neg(p)])
        b.store(y, [p, 1], value)

    y = np.zeros((4, 2), np.int32)
    run(kernel([pointer("y", i32, "out", 2)], body), (4,), y=y)
    assert y.tolist() == [[100, 0], [0, 2], [300, -2], [0, 4]]


def test_poisoned_bounds_of_programs_that_are_not_there_do_no_harm():
    def body(b: Builder, n: Any, y: Any) -> None:
        p = b.program_id(0)

        def then() -> list[ir.Value]:
            stop = b.load(n, [p])
            return list(b.for_(0, stop, 1, [b.value(0)], lambda i, c: [b.add(c[0], 1)]))

        (count,) = b.if_(b.lt(p, 2), then, lambda: [b.value(-1)])
        b.store(y, [p], count)

    y = np.zeros(4, np.int32)
    made = kernel([pointer("n", i32), pointer("y", i32, "out")], body)
    run(made, (4,), n=np.array([3, 5], np.int32), y=y)
    assert y.tolist() == [3, 5, -1, -1]


def chunk_log(size: int) -> ir.Kernel:
    """y[p] = the lengths of every other chunk of 0..n[p], folded as old * 10 + new."""

    def body(b: Builder, n: Any, y: Any) -> None:
        p = b.program_id(0)

        def chunk(start: ir.Value, stop: ir.Value) -> Any:
            number = b.div(start, size)
            keep = b.eq(b.and_(number, 1), 0)
            return [b.sub(stop, start)], keep

        (value,) = b.walk(b.load(n, [p]), size, chunk,
                          lambda old, new: [b.add(b.mul(old[0], 10), new[0])], [-1])  # fmt: skip
        b.store(y, [p], value)

    return kernel([pointer("n", i32), pointer("y", i32, "out")], body)


def test_a_walk_copies_the_first_chunk_and_skips_what_does_not_count():
    n = np.array([0, 1, 4, 5, 8, 9, 12, -3], np.int32)
    y = np.zeros(8, np.int32)
    run(chunk_log(4), (8,), n=n, y=y)
    # each chunk's value is its length; the chunk 4..8 does not count
    assert y.tolist() == [-1, 1, 4, 4, 4, 40 + 1, 40 + 4, -1]


def test_a_walk_counts_chunks_row_by_row():
    def body(b: Builder, y: Any, n: Any) -> None:
        row = b.arange(0, 4)

        def chunk(start: ir.Value, stop: ir.Value) -> Any:
            number = b.div(start, 2)
            value = b.broadcast(b.cast(b.add(number, 1), f32), (4, 3))
            return [value, b.broadcast(number, (4,))], b.ge(number, row)

        total, last = b.walk(n, 2, chunk, lambda o, c: [b.add(o[0], c[0]), b.max(o[1], c[1])],
                             [0.5, -7])  # fmt: skip
        b.store(y, [b.expand(row, 1), b.expand(b.arange(0, 3), 0)], total)
        b.store(y, [row, b.value(3)], b.cast(last, f32))

    y = np.zeros((4, 4), F)
    run(kernel([pointer("y", access="out", rank=2)], body, "n"), scalars={"n": 5}, y=y)
    assert y.tolist() == [[6, 6, 6, 2], [5, 5, 5, 2], [3, 3, 3, 2], [0.5, 0.5, 0.5, -7]]


# ------------------------------------------------------------------------------------- tiles


X = np.arange(24, dtype=F).reshape(4, 6)


def test_shapes_move_elements_as_numpy_does():
    assert (tile(lambda b, x: b.reshape(x, [2, 3, 4]), X, (2, 3, 4)) == X.reshape(2, 3, 4)).all()
    assert (tile(lambda b, x: b.transpose(x), X, (6, 4)) == X.T).all()
    wide = tile(lambda b, x: b.transpose(b.reshape(x, [2, 2, 6]), [2, 0, 1]), X, (6, 2, 2))
    assert (wide == X.reshape(2, 2, 6).transpose(2, 0, 1)).all()


def test_split_and_join():
    for axis in (0, 1):
        for how in ("halves", "pairs"):
            half = X.shape[axis] // 2
            picks = np.arange(half) if how == "halves" else np.arange(0, 2 * half, 2)
            first = tile(lambda b, x, a=axis, h=how: b.split(x, a, h)[0], X,
                         X.take(picks, axis).shape)  # fmt: skip
            assert (first == X.take(picks, axis)).all()
            back = tile(lambda b, x, a=axis, h=how: b.join(*b.split(x, a, h), a, h), X, (4, 6))
            assert (back == X).all()


def test_tiles_that_are_constant_along_an_axis():
    def stretched(b: Builder, x: ir.Value) -> ir.Value:
        return b.broadcast(b.reduce("max", x, 1), (3, 4))

    top = X.max(axis=1)
    wide = np.broadcast_to(top, (3, 4))
    assert (tile(stretched, X, (3, 4)) == wide).all()
    assert (tile(lambda b, x: b.reshape(stretched(b, x), [12]), X, (12,)) == wide.ravel()).all()
    assert (tile(lambda b, x: b.split(stretched(b, x), 1)[1], X, (3, 2)) == wide[:, 2:]).all()
    both = tile(lambda b, x: b.join(stretched(b, x), b.zeros([3, 4]), 0), X, (6, 4))
    assert (both == np.concatenate([wide, np.zeros((3, 4))])).all()
    sums = tile(lambda b, x: b.reduce("sum", stretched(b, x), 0), X, (4,))
    assert (sums == 3 * top).all()
    filled = tile(lambda b, x: b.reduce("sum", b.full([3, 8], 0.5), 1), X, (3,))
    assert filled.tolist() == [4, 4, 4]
    ones = tile(lambda b, x: b.dot(b.full([2, 4], 1.0), x), X, (2, 6))
    assert (ones == np.broadcast_to(X.sum(axis=0), (2, 6))).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_skip_masked_elements(axis):
    x = np.random.default_rng(6).standard_normal((8, 32)).astype(F)
    x[2, 5] = np.nan
    shape = np.delete((8, 32), axis)

    def reduced(kind: str) -> np.ndarray:
        return tile(lambda b, v: b.reduce(kind, v, axis, b.eq(v, v)), x, tuple(shape))

    assert reduced("sum").tobytes() == exact.reduce_sum(np.nan_to_num(x), axis).tobytes()
    assert (reduced("max") == np.nanmax(x, axis=axis)).all()
    assert (reduced("min") == np.nanmin(x, axis=axis)).all()
    assert (reduced("argmax") == np.nanargmax(x, axis=axis)).all()


def test_reductions_without_any_element():
    def nothing(kind: str, x: np.ndarray) -> list[Any]:
        return tile(lambda b, v: b.reduce(kind, v, 0, b.lt(v, v)), x, ()).reshape(-1).tolist()

    floats, ints = F([1, 2, 3]), np.array([1, 2, 3], np.int32)
    assert nothing("sum", floats) == [0] and nothing("sum", ints) == [0]
    assert nothing("max", floats) == [-np.inf] and nothing("max", ints) == [-(2**31)]
    assert nothing("min", floats) == [np.inf] and nothing("min", ints) == [2**31 - 1]
    assert nothing("argmax", floats) == [0] and nothing("max", ints.view(np.uint32)) == [0]


def test_a_streaming_sum_over_tiles():
    def body(b: Builder, x: Any, y: Any) -> None:
        column = b.expand(b.arange(0, 64), 0)
        row = b.expand(b.arange(0, 2), 1)

        def turn(i: ir.Value, carried: Any) -> list[ir.Value]:
            k = b.add(b.mul(i, 64), column)
            inside = b.lt(k, 150)
            return [b.accumulate(carried[0], b.load(x, [row, k], inside), 1, inside)]

        (state,) = b.for_(0, 3, 1, [b.partials([2])], turn)
        b.store(y, [b.arange(0, 2)], b.finish(state))

    x = np.random.default_rng(7).standard_normal((2, 150)).astype(F)
    y = np.zeros(2, F)
    run(kernel([pointer("x", rank=2), pointer("y", access="out")], body), x=x, y=y)
    assert y.tobytes() == exact.reduce_sum(x, 1).tobytes()


def test_elementwise_operations_on_integers():
    x = np.array([[-7, 7, -(2**31), 5], [2, -2, -1, 0]], np.int32)

    def two(name: str) -> list[int]:
        def value(b: Builder, v: ir.Value) -> ir.Value:
            first, second = (b.reshape(part, [4]) for part in b.split(v, 0))
            return b.binary(name, first, second)

        return tile(value, x, (4,)).tolist()

    assert two("div") == [-3, -3, -(2**31), 0] and two("mod") == [-1, 1, 0, 0]
    assert two("mul") == [-14, -14, -(2**31), 0] and two("min") == [-7, -2, -(2**31), 0]
    assert two("xor") == [-5, -7, 2**31 - 1, 5] and two("shr") == [-2, 0, -1, 5]


def test_library_calls_are_applied_element_by_element():
    a, c = ir.Value(ir.TileType(f32)), ir.Value(ir.TileType(f32))
    block = ir.Block([a, c])
    b = Builder(block)
    block.results = [b.fma(a, 2.0, b.where(b.lt(c, 0.0), 0.0, c))]

    def body(b: Builder, x: Any, y: Any) -> None:
        at = [b.program_id(0), b.arange(0, 6)]
        v = b.load(x, at)
        b.store(y, at, b.call("twice", v, b.sub(v, 10.0)))

    made = kernel([pointer("x", rank=2), pointer("y", access="out", rank=2)], body)
    made.functions["twice"] = ir.Function("twice", block)
    y = np.zeros((4, 6), F)
    run(made, (4,), x=X, y=y)
    assert (y == X * 2 + np.maximum(X - 10, 0)).all()


# --------------------------------------------------------------------------------- breakpoints


STOPPING = """def mean(x: tl.ptr[f32, M, N], y: tl.out[f32, M], s: tl.f32, B: tl.schedule[64] = 64):
    row = tl.program_id(0, M)
    for c in tl.chunks(N, 64):
        k = c.start + tl.arange(0, 64)
        v = tl.load(x[row, k], mask=k < c.stop, other=0.0)
        flat = tl.zeros([64])
        if row > 0:
            breakpoint()
        total = tl.combine(tl.add, tl.sum(v + flat))
    tl.store(y[row], total * s)
"""


def stopping() -> ir.Kernel:
    return KernelDefinition.from_source(STOPPING, "mean.py").specialise()


def debug(monkeypatch: pytest.MonkeyPatch, capsys: Any, commands: str, rows: int = 2) -> str:
    """What pdb prints at the breakpoint of programs 1, 2, ..., fed with ``commands``."""
    monkeypatch.setattr("sys.stdin", io.StringIO(commands))
    x, y = np.arange(rows * 40, dtype=F).reshape(rows, 40), np.zeros(rows, F)
    sizes = {"s": 2.0, "M": rows, "N": 40}
    interpret(stopping(), {"x": x, "y": y}, sizes, (rows,), breakpoints=True)
    return str(capsys.readouterr().out)


def test_a_breakpoint_stops_in_the_kernels_source(monkeypatch, capsys):
    text = debug(monkeypatch, capsys, "p v[:3] * 2\np int(row)\nc\n")
    assert "mean.py(8)mean()" in text and "<module>" not in text
    assert "[80., 82., 84.]" in text and "\n(Pdb) 1" in text


def test_a_breakpoint_shows_what_the_author_named(monkeypatch, capsys):
    text = debug(monkeypatch, capsys, "names\np c.start, c.stop, B, s, x.shape, flat.shape\nc\n")
    listed = ("row: i32", "c.start: i32", "v: f32[64]", "flat: f32[64]", "B: constexpr 64")
    assert all(f"{line}\n" in text for line in (*listed, "x: buffer `x` [2, 40]"))
    assert "(np.int32(0), np.int32(40), 64, np.float32(2.0), (2, 40), (64,))" in text


def test_a_breakpoint_shows_the_programs_that_are_there(monkeypatch, capsys):
    commands = "p row, v[0]\nprogram 2\np row, v[0]\nprogram 0\nprogram 3\nprogram x\nprogram\nc\n"
    text = debug(monkeypatch, capsys, commands, rows=3)
    assert text.startswith("program 1; 2 are here, up to 2 (`program 2` shows it); `names` lists")
    assert "(np.int32(1), np.float32(40.0))" in text and "(np.int32(2), np.float32(80.0))" in text
    for wrong in (0, 3):
        assert f"*** program {wrong} is not here: 2 are here" in text
    assert "*** invalid literal" in text and "\n(Pdb) program 2; 2 are here" in text


def test_quitting_a_breakpoint_ends_the_run(monkeypatch, capsys):
    with pytest.raises(bdb.BdbQuit):
        debug(monkeypatch, capsys, "q\n")


def test_breakpoints_are_passed_by_unless_asked_for():
    x, y = np.ones((1, 40), F), np.zeros(1, F)
    interpret(stopping(), {"x": x, "y": y}, {"s": 2.0, "M": 1, "N": 40}, (1,))
    assert y[0] == 80
