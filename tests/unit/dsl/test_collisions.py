"""Several lanes or programs at one element: proved apart, refused, or watched while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ferro.dsl import CompileError, ir
from ferro.dsl.collisions import rewritten, watched
from ferro.dsl.interpreter import ORDERS, CollisionError, interpret
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import bind

HEAD = """def f(x: tl.ptr[f32, N], at: tl.ptr[i32, N], w: tl.ptr[f32, M, N], y: tl.out[f32, N],
      s: tl.out[f32, M], t: tl.out[f32, M, N], u: tl.inout[f32, N], k: tl.i32[1, 100],
      a: tl.a8_out[M, K]):
    row = tl.program_id(0, M)
    col = tl.program_id(1, N)
    i = tl.arange(0, 64)
    m = tl.arange(0, 4)
"""
BLOCKS = """def f(x: tl.ptr[f32, N], at: tl.ptr[i32, N], w: tl.ptr[f32, M, N], y: tl.out[f32, N],
      t: tl.out[f32, M, N], u: tl.inout[f32, N], k: tl.i32[1, 100], B: tl.schedule[16, 64] = 64):
    n = tl.block(0, N, B)
    v = tl.load(x[n], mask=n < N, other=0.0)
"""


def made(text: str, head: str) -> ir.Kernel:
    body = "".join(f"    {line}\n" for line in text.split("\n"))
    return KernelDefinition.from_source(head + body, "kernel.py").specialise()


PROVED = {
    "a_tile": (BLOCKS, "tl.store(y[n], v, mask=n < N)"),
    "a_shifted_tile": (BLOCKS, "tl.store(y[N - 1 - n], v, mask=n < N)"),
    "a_strided_tile": (BLOCKS, "tl.store(y[n * 3 + 1], v, mask=n * 3 + 1 < N)"),
    "every_second_element": (BLOCKS, "tl.store(y[n // 2], v, mask=(n < N) & (n % 2 == 0))"),
    "one_number": (BLOCKS, "tl.store(y[n // 2], 0.0, mask=n < N)"),
    "a_number_for_a_row": (HEAD, "tl.store(s[row], tl.load(x[row], mask=row < N, other=0.0))"),
    "two_axes": (
        HEAD,
        "q = tl.load(w[row, i], mask=i < N)\ntl.store(t[row, i], q, mask=i < N)",
    ),
    "transposed_axes": (
        HEAD,
        "b = (m < M)[:, None] & (i < N)[None, :]\n"
        "q = tl.load(w[m[:, None], i[None, :]], mask=b)\n"
        "tl.store(t[m[:, None], i[None, :]], q, mask=b)",
    ),
    "a_flat_index": (
        HEAD,
        "n = m[:, None] * 16 + tl.arange(0, 16)[None, :]\n"
        "q = tl.load(x[n], mask=n < N)\ntl.store(y[n], q, mask=n < N)",
    ),
    "a_number_taken_apart": (
        HEAD,
        "e = tl.program_id(2, M * N)\ntl.store(t[e // N, e % N], e.to(f32))",
    ),
    "one_program": (HEAD, "if row == 0:\n    if col == 0:\n        tl.store(y[0], tl.load(x[0]))"),
    "one_lane": (HEAD, "tl.store(s[row + i * 0], i.to(f32), mask=i == row)"),
    "turns_of_one_program": (
        HEAD,
        "for j in range(4):\n    tl.store(s[row], j.to(f32))",
    ),
    "a_block_for_a_row": (
        HEAD,
        "q, d = tl.quantize_i8(tl.load(x[tl.arange(0, 32)], mask=tl.arange(0, 32) < N, other=0.0)"
        "[None, :])\ntl.store_block(a, row, 0, q.reshape([32]), d.reshape([]), mask=K > 0)",
    ),
}
REFUSED = {
    "low_bits": (BLOCKS, "tl.store(y[n & 3], v, mask=n < N)", "lanes"),
    "a_quotient": (BLOCKS, "tl.store(y[n // 2], v, mask=n < N)", "lanes"),
    "a_shift": (BLOCKS, "tl.store(y[n >> 1], v, mask=n < N)", "lanes"),
    "a_remainder": (BLOCKS, "tl.store(y[n % 8], v, mask=n < N)", "lanes"),
    "a_remainder_of_a_size": (BLOCKS, "tl.store(y[n % k], v, mask=n < N)", "programs"),
    "lanes_alone": (
        HEAD,
        "q = tl.load(x[i], mask=i < N)\ntl.store(y[i // 2], q, mask=i < N)",
        "lanes",
    ),
    "an_axis_that_the_index_lacks": (
        HEAD,
        "b = (m < M)[:, None] & (i < N)[None, :]\n"
        "q = tl.load(w[m[:, None], i[None, :]], mask=b)\n"
        "tl.store(y[tl.broadcast_to(i[None, :], [4, 64])], q, mask=b)",
        "lanes along axis 0",
    ),
    "every_program_at_one_element": (
        HEAD,
        "tl.store(y[0], tl.load(x[row], mask=row < N, other=0.0))",
        "programs along axis 0",
    ),
    "windows_that_overlap": (
        HEAD,
        "n = col + i\ntl.store(y[n], tl.load(x[i], mask=i < N, other=0.0), mask=n < N)",
        "programs along axis 1",
    ),
    "in_place_by_programs_that_share_it": (
        HEAD,
        "tl.store(u[i], tl.load(u[i], mask=i < N, other=0.0) * 2.0, mask=i < N)",
        "programs",
    ),
    "a_block_for_all_rows": (
        HEAD,
        "q, d = tl.quantize_i8(tl.load(x[row + tl.arange(0, 32)], mask=row + tl.arange(0, 32) < N,"
        " other=0.0)[None, :])\n"
        "tl.store_block(a, 0, 0, q.reshape([32]), d.reshape([]), mask=(K > 0) & (M > 0))",
        "programs",
    ),
}
WATCHED = {
    "a_scatter": (BLOCKS, "p = tl.load(at[n], mask=n < N, other=0)\n"
                  "tl.store(y[p], v, mask=(n < N) & (p >= 0) & (p < N))"),
    "a_ring": (BLOCKS, "tl.store(y[(n + k) % N], v, mask=n < N)"),
    "a_remainder_of_the_length": (BLOCKS, "tl.store(y[n % k], v, mask=(n < k) & (n < N))"),
    "a_value_of_the_index": (BLOCKS, "tl.store(y[n // 2], (n // 2).to(f32), mask=n < N)"),
    "all_at_the_last": (BLOCKS, "tl.store(y[tl.minimum(n, k)], v, mask=(n < N) & (k < N))"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_proved_apart(name: str) -> None:
    head, text = PROVED[name]
    assert watched(made(text, head)) == frozenset()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    head, text, who = REFUSED[name]
    with pytest.raises(CompileError) as caught:
        made(text, head)
    (found,) = (d for d in caught.value.diagnostics if d.code == "FER313")
    assert who in found.message
    assert "mask" in found.help


@pytest.mark.parametrize("name", WATCHED)
def test_left_to_the_interpreter(name: str) -> None:
    head, text = WATCHED[name]
    assert watched(made(text, head)) == {"y"}


def run(text: str, head: str, order: str, **buffers: Any) -> np.ndarray:
    kernel = made(text, head)
    ones = np.arange(1, 101, dtype=np.float32)
    arguments: dict[str, Any] = {
        "x": ones, "at": np.arange(100, dtype=np.int32), "w": np.ones((2, 100), np.float32),
        "y": np.zeros(100, np.float32), "t": np.zeros((2, 100), np.float32),
        "u": ones.copy(), "k": 7, **buffers,
    }  # fmt: skip
    bound = bind(kernel, arguments)
    interpret(kernel, bound.buffers, bound.scalars, bound.grid, order=order)
    return np.asarray(arguments["y"])


@pytest.mark.parametrize("order", ORDERS)
def test_a_permutation_is_scattered(order: str) -> None:
    shuffled = np.random.default_rng(1).permutation(100).astype(np.int32)
    y = run(WATCHED["a_scatter"][1], BLOCKS, order, at=shuffled)
    assert (y[shuffled] == np.arange(1, 101)).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("first", "second"), [(3, 4), (3, 90)], ids=["lanes", "programs"])
def test_a_scatter_to_one_element_is_found(order: str, first: int, second: int) -> None:
    at = np.arange(100, dtype=np.int32)
    at[second] = at[first]
    with pytest.raises(CollisionError) as caught:
        run(WATCHED["a_scatter"][1], BLOCKS, order, at=at)
    text = str(caught.value)
    assert "FER803" in text and "`y[3]`" in text
    assert ("program (0) and program (1)" if second > 64 else "two lanes of program (0)") in text


@pytest.mark.parametrize("order", ORDERS)
def test_equal_values_do_not_collide(order: str) -> None:
    x = np.full(100, np.nan, np.float32)
    y = run(WATCHED["a_scatter"][1], BLOCKS, order, at=np.full(100, 3, np.int32), x=x)
    assert np.isnan(y[3]) and not y[:3].any()


@pytest.mark.parametrize("order", ORDERS)
def test_two_stores_of_different_programs_collide(order: str) -> None:
    text = "tl.store(y[n], v, mask=n < N)\ntl.store(y[n + 1], -v, mask=n + 1 < N)"
    head = BLOCKS.replace("tl.block(0, N, B)", "tl.program_id(0, N)")
    with pytest.raises(CollisionError, match="program"):
        run(text, head, order)


@pytest.mark.parametrize("order", ORDERS)
def test_zeros_of_two_signs_collide(order: str) -> None:
    x = np.zeros(100, np.float32)
    x[7] = -0.0
    with pytest.raises(CollisionError):
        run(WATCHED["a_scatter"][1], BLOCKS, order, at=np.full(100, 3, np.int32), x=x)


REWRITTEN = {
    "turns_that_overlap": "for j in range(4):\n    tl.store(t[row, i + j], 1.0 * (i + j).to(f32),"
    " mask=i + j < N)",
    "two_stores": "tl.store(t[row, i], 1.0, mask=i < N)\n"
    "tl.store(t[row, N - 1 - i], 2.0, mask=i < N)",
}
WRITTEN_ONCE = {
    "tiles": "for j in range(0, N, 64):\n    tl.store(t[row, i + j], 1.0, mask=i + j < N)",
    "one_lane_over_and_over": "for j in range(4):\n    tl.store(t[row, i], j.to(f32), mask=i < N)",
    "scalars": "tl.store(s[row], 1.0)\ntl.store(s[row], 2.0)",
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_lanes_that_overwrite_each_other_later(name: str) -> None:
    assert rewritten(made(REWRITTEN[name], HEAD)) == {"t"}


@pytest.mark.parametrize("name", WRITTEN_ONCE)
def test_lanes_that_keep_to_their_own_elements(name: str) -> None:
    assert rewritten(made(WRITTEN_ONCE[name], HEAD)) == frozenset()
