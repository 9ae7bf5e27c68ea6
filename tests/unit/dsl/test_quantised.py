"""Host forms of quantised matrices: the rounding rules, padding and validation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ferro.dsl.quantised import A8, Q4, Q8, block_sums

F = np.float32


def q8_block(values: list[float]) -> tuple[np.float16, list[int]]:
    """llama.cpp's quantize_row_q8_0 for one block, in float32 steps."""
    amax = max(abs(F(v)) for v in values)
    d = F(amax / F(127))
    inverse = F(F(1) / d) if d else F(0)
    scaled = [float(F(F(v) * inverse)) for v in values]
    return np.float16(d), [int(math.copysign(math.floor(abs(v) + 0.5), v)) for v in scaled]


def test_q8_follows_the_rule_of_q8_0():
    x = np.random.default_rng(0).standard_normal((3, 96)).astype(F)
    w = Q8.quantize(x)
    for row in range(3):
        for block in range(3):
            part = slice(block * 32, block * 32 + 32)
            scale, q = q8_block(list(x[row, part]))
            assert w.scale[row, block] == scale
            assert w.q[row, part].tolist() == q


def test_q8_rounds_ties_away_from_zero():
    x = np.zeros((1, 32), F)
    x[0, :4] = [127.0, 2.5, -2.5, 0.5]
    assert Q8.quantize(x).q[0, :4].tolist() == [127, 3, -3, 1]


@pytest.mark.parametrize("half", [0.5, 1.5, 2.5, 63.5, 126.5])
def test_q8_rounds_down_just_below_a_half(half: float):
    x = np.zeros((1, 32), F)
    x[0, 0], x[0, 1] = 127, np.nextafter(F(half), F(0))
    assert Q8.quantize(x).q[0, :2].tolist() == [127, math.floor(half)]
    assert Q8.quantize(-x).q[0, :2].tolist() == [-127, -math.floor(half)]


def test_q8_of_zeros_and_of_values_too_small_for_a_scale():
    assert not Q8.quantize(np.zeros((2, 64), F)).q.any()
    tiny = Q8.quantize(np.full((1, 32), 1e-44, F))
    assert not tiny.scale.any() and not tiny.dequantize().any()


def test_dequantised_values_are_near():
    x = np.random.default_rng(1).standard_normal((5, 70)).astype(F)
    w = Q8.quantize(x)
    assert w.shape == (5, 70) and w.q.shape == (5, 96) and w.nbytes == 5 * 3 * 34
    assert np.abs(w.dequantize() - x).max() < np.abs(x).max() / 127
    assert w.dequantize().shape == x.shape


def test_a8_follows_the_rule_of_the_language():
    x = np.random.default_rng(2).standard_normal((2, 33)).astype(F)
    a = A8.quantize(x)
    amax = np.abs(x[0, :32]).max()
    assert a.scale[0, 0] == F(amax / F(127))
    assert (a.q[0, :32] == np.rint(x[0, :32] * F(F(127) / amax))).all()
    assert (a.sums == block_sums(a.q)).all() and a.sums[0, 0] == a.q[0, :32].astype(int).sum()


def test_a8_of_blocks_that_have_no_scale():
    x = np.ones((4, 32), F)
    x[0] = 0
    x[1] = 2.0**-126
    x[2, 3] = np.nan
    x[3, 5] = -np.inf
    a = A8.quantize(x)
    assert a.scale[:2, 0].tolist() == [0, 0] and np.isnan(a.scale[2:, 0]).all()
    assert not a.q.any()


def test_an_empty_a8_is_padded():
    a = A8.empty(3, 40)
    assert a.q.shape == (3, 64) and a.scale.shape == (3, 2) and a.sums.shape == (3, 2)
    assert a.shape == (3, 40) and not a.q.any()


@pytest.mark.parametrize("rows, cols", [(0, 32), (3, 0)])
def test_matrices_without_elements(rows, cols):
    assert Q8.quantize(np.zeros((rows, cols), F)).shape == (rows, cols)
    assert A8.quantize(np.zeros((rows, cols), F)).dequantize().shape == (rows, cols)


def test_what_does_not_fit_is_refused():
    q, scale = np.zeros((2, 64), np.int8), np.zeros((2, 2), np.float16)
    with pytest.raises(TypeError, match="float16 scales"):
        Q8(q, scale.astype(F))
    with pytest.raises(ValueError, match="multiple of 32"):
        Q8(q[:, :33], scale)
    with pytest.raises(ValueError, match=r"\[rows, K/32\]"):
        Q8(q, scale[:, :1])
    with pytest.raises(ValueError, match="do not pad"):
        Q8(q, scale, 32)
    with pytest.raises(ValueError, match="must be zero"):
        Q8(np.ones((2, 64), np.int8), scale, 40)
    with pytest.raises(ValueError, match="not finite"):
        Q8.quantize(np.full((1, 32), np.inf, F))
    with pytest.raises(ValueError, match="float16"):
        Q8.quantize(np.full((1, 32), 1e38, F))
    with pytest.raises(ValueError, match=r"\[rows, cols\]"):
        Q8.quantize(np.zeros(32, F))


def q4_block(values: list[float]) -> tuple[np.float16, np.float16, list[int]]:
    """llama.cpp's quantize_row_q4_1 for one block, in float32 steps."""
    low, high = F(min(values)), F(max(values))
    d = F(F(high - low) / F(15))
    inverse = F(F(1) / d) if d else F(0)
    q = [min(15, int(F(F(F(F(v) - low) * inverse) + F(0.5)))) for v in values]
    return np.float16(d), np.float16(low), q


def test_q4_follows_the_rule_of_q4_1():
    x = np.random.default_rng(2).standard_normal((3, 96)).astype(F)
    w = Q4.quantize(x)
    for row in range(3):
        for block in range(3):
            part = slice(block * 32, block * 32 + 32)
            scale, low, q = q4_block(list(x[row, part]))
            assert (w.scale[row, block], w.minimum[row, block]) == (scale, low)
            assert w.q[row, part].tolist() == q


def test_q4_of_a_constant_block_is_its_minimum():
    w = Q4.quantize(np.full((2, 32), 0.75, F))
    assert not w.q.any() and (w.dequantize() == F(0.75)).all()


def test_q4_dequantises_with_one_rounding():
    q = np.full((1, 32), 7, np.int8)
    w = Q4(q, np.full((1, 1), 0.1, np.float16), np.full((1, 1), -0.3, np.float16))
    exact = 7 * float(np.float16(0.1)) + float(np.float16(-0.3))
    assert (w.dequantize() == F(exact)).all() and w.nbytes == 20


@pytest.mark.parametrize("bad", [-1, 16])
def test_q4_values_have_four_bits(bad: int):
    q = np.zeros((1, 32), np.int8)
    q[0, 3] = bad
    one = np.ones((1, 1), np.float16)
    with pytest.raises(ValueError, match="from 0 to 15"):
        Q4(q, one, one)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_q4_refuses_what_float16_cannot_scale(bad: float):
    x = np.zeros((1, 32), F)
    x[0, 5] = bad
    with pytest.raises(ValueError, match=r"Q4\.quantize"):
        Q4.quantize(x)
