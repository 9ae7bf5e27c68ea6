"""Promises between launches: a row's bits do not depend on its company, nor on what is fused.

What is compared here are results of the same device, in every bit; that they are the right ones,
and the interpreter's, is the business of the other files.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ferro.codegen.program import Config
from ferro.dsl.quantised import A8
from ferro.runtime import open_device
from kernels_src.attention import attention_f16
from kernels_src.matmul import gated_q8, gated_q8_a8, matmul, matmul_q8
from kernels_src.matmul_q4 import gated_q4, gated_q4_a8
from kernels_src.norms import rmsnorm, rmsnorm_a8
from kernels_src.quantise import quantise
from kernels_src.vectors import activate_multiply
from tests.conformance import Draw, assert_same_bits
from tests.stacks import FULL, open_stack

Run = Callable[..., Any]
FAR = 2**30 - 1
STACKS = ("interpreter", "intel-simd", "intel-simt", *(("pocl-simd", "pocl-simt") if FULL else ()))


@pytest.fixture(params=STACKS)
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "interpreter":
        return open_device("interpreter").run
    try:
        return open_stack(request.param)
    except Exception as error:
        pytest.skip(str(error))


def attend(run: Run, queries: Any, k: Any, v: Any, keys: int, first: int = 0, **more: Any) -> Any:
    """The result for queries that end at key ``keys`` of the sequence that begins at ``first``."""
    out = np.zeros_like(queries)
    options = {"left": FAR, "right": 0, "GROUP": 2, "scale": 0.125, **more}
    run(
        attention_f16,
        q=queries,
        k=k,
        v=v,
        starts=np.array([0, len(queries)], np.int32),
        keys=np.array([[first, keys]], np.int32),
        out=out,
        longest=len(queries),
        most=keys,
        **options,
    )
    return out


@pytest.mark.device
@pytest.mark.parametrize("left", [FAR, 15])
def test_decoding_gives_the_bits_of_prefill(run: Run, left: int) -> None:
    draw = Draw(3)
    length = 150
    q, k, v = draw.f32(length, 2, 64), draw.f16(length, 1, 64), draw.f16(length, 1, 64)
    whole = attend(run, q, k, v, length, left=left)
    for at in (0, 1, 63, 64, 65, 127, 128, 149):
        alone = attend(run, q[at : at + 1].copy(), k, v, at + 1, left=left)
        assert_same_bits(alone[0], whole[at], f"position {at}")
    slice_ = attend(run, q[60:100].copy(), k, v, 100, left=left)
    assert_same_bits(slice_, whole[60:100], "a slice of the prompt")


@pytest.mark.device
def test_attention_does_not_depend_on_place_or_split(run: Run) -> None:
    draw = Draw(4)
    q, k, v = draw.f32(3, 2, 64), draw.f16(200, 1, 64), draw.f16(200, 1, 64)
    want = attend(run, q, k, v, 200)
    moved = [np.concatenate([draw.f16(37, 1, 64), x, draw.f16(9, 1, 64)]) for x in (k, v)]
    assert_same_bits(attend(run, q, *moved, 200, first=37), want, "other rows of the cache")
    for config in (Config(split=2), Config({"BR": 1}, split=4), Config({"BR": 3})):
        assert_same_bits(attend(run, q, k, v, 200, config=config), want, str(config))


@pytest.mark.device
@pytest.mark.parametrize("cols", [1100, 64])
def test_a_row_of_a_product_does_not_depend_on_the_others(run: Run, cols: int) -> None:
    draw = Draw(5)
    w, x = draw.q8(40, cols), draw.a8(9, cols)
    many = np.zeros((9, 40), np.float32)
    run(matmul_q8, w=w, x=x, y=many)
    for row in (0, 8):
        one = np.zeros((1, 40), np.float32)
        alone = A8(x.q[row : row + 1].copy(), x.scale[row : row + 1].copy(), cols)
        run(matmul_q8, w=w, x=alone, y=one, BM=1)
        assert_same_bits(one[0], many[row], f"row {row}")


@pytest.mark.device
def test_a_row_of_a_float_product_does_not_depend_on_the_others(run: Run) -> None:
    draw = Draw(6)
    w, x = draw.f32(600, 30), draw.f32(7, 600)
    many, one = np.zeros((7, 30), np.float32), np.zeros((1, 30), np.float32)
    run(matmul, x=x, w=w, y=many)
    run(matmul, x=x[4:5].copy(), w=w, y=one, config=Config({"BM": 1, "BK": 8}))
    assert_same_bits(one[0], many[4], "row 4")


@pytest.mark.device
@pytest.mark.parametrize("cols", [4500, 70])
def test_fused_quantisation_gives_the_bits_of_two_kernels(run: Run, cols: int) -> None:
    draw = Draw(7)
    x, w = draw.f32(3, cols), draw.f32(cols)
    normed, fused, parts = np.zeros_like(x), A8.empty(3, cols), A8.empty(3, cols)
    run(rmsnorm_a8, x=x, w=w, y=fused, eps=1e-6)
    run(rmsnorm, x=x, w=w, y=normed, eps=1e-6)
    run(quantise, x=normed, y=parts)
    assert_same_bits(fused, parts, "rmsnorm_a8")


@pytest.mark.device
def test_fused_epilogues_give_the_bits_of_their_parts(run: Run) -> None:
    draw = Draw(8)
    gate, up, x = draw.q8(40, 600), draw.q8(40, 600), draw.a8(3, 600)
    bias, residual = draw.f32(40), draw.f32(3, 40)
    a, b, parts, fused = (np.zeros((3, 40), np.float32) for _ in range(4))
    run(matmul_q8, w=gate, x=x, y=a)
    run(matmul_q8, w=up, x=x, y=b)
    run(
        activate_multiply,
        gate=a.reshape(-1),
        up=b.reshape(-1),
        out=parts.reshape(-1),
        ACT="silu",
    )
    run(gated_q8, gate=gate, up=up, x=x, y=fused, ACT="silu")
    assert_same_bits(fused, parts, "gated_q8")

    run(matmul_q8, w=gate, x=x, y=fused, bias=bias, residual=residual)
    assert_same_bits(fused, (a + bias) + residual, "bias and residual")


@pytest.mark.device
@pytest.mark.parametrize("kernels", [(gated_q8, gated_q8_a8), (gated_q4, gated_q4_a8)])
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 40, 600), (5, 96, 64)])
def test_quantised_gated_products_give_the_bits_of_two_kernels(
    run: Run, kernels: tuple[Any, Any], rows: int, n: int, k: int
) -> None:
    draw = Draw(9)
    weights = draw.q8 if gated_q8 in kernels else draw.q4
    given = {"gate": weights(n, k), "up": weights(n, k), "x": draw.a8(rows, k)}
    given |= {"gate_bias": draw.f32(n), "up_bias": draw.f32(n)}
    plain, fused, parts = np.zeros((rows, n), np.float32), A8.empty(rows, n), A8.empty(rows, n)
    run(kernels[0], y=plain, **given)
    run(kernels[1], y=fused, **given)
    run(quantise, x=plain, y=parts)
    assert_same_bits(fused, parts, "the activations")
