"""The numpy arithmetic of the language against exact rational arithmetic and plain loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.dsl import exact

F = np.float32
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-149, -(2.0**-126), 3.4028235e38], F
)
bits = st.integers(0, 2**32 - 1)


def floats(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32).view(F)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in every bit, any NaN equal to any other."""
    a, b = np.asarray(a), np.asarray(b)
    nan = np.isnan(a) & np.isnan(b)
    return a.dtype == b.dtype and bool((nan | (a.view(np.int32) == b.view(np.int32))).all())


def rounded(x: Fraction) -> np.float32:
    """The float32 nearest to a rational number that is not 0, ties to even."""
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(-149, exponent - 24 if size < Fraction(2) ** exponent else exponent - 23)
    value = round(size / Fraction(2) ** exponent) * Fraction(2) ** exponent
    magnitude = F(np.inf) if value >= 2**128 else F(float(value))
    return -magnitude if x < 0 else magnitude


def fma_by_fractions(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    wide = np.float64(a) * np.float64(b) + np.float64(c)
    if not np.isfinite([a, b, c]).all():
        return F(wide)
    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return rounded(total) if total else F(wide)


def check_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        expected = [fma_by_fractions(*three) for three in zip(a, b, c, strict=True)]
        assert same(exact.fma32(a, b, c), np.array(expected, F))


def test_fma_of_any_bits():
    check_fma(floats(1, 2000), floats(2, 2000), floats(3, 2000))


def test_fma_where_the_addend_decides_the_rounding():
    rng = np.random.default_rng(4)
    a, b = floats(5, 3000), floats(6, 3000)
    with np.errstate(all="ignore"):
        c = (a.astype(np.float64) * b * 2.0 ** rng.integers(-60, 60, a.size)).astype(F)
    check_fma(a, b, c)


def test_fma_near_ties_and_subnormals():
    rng = np.random.default_rng(7)
    n = 3000
    a = (rng.integers(-4096, 4096, n) * 2.0 ** rng.integers(-80, 40, n)).astype(F)
    b = (rng.integers(-4096, 4096, n) * 2.0 ** rng.integers(-70, 40, n)).astype(F)
    c = (rng.integers(-4096, 4096, n) * 2.0 ** rng.integers(-149, 40, n)).astype(F)
    check_fma(a, b, c)


def test_fma_that_rounding_twice_gets_wrong():
    # 4097^2 is a tie of float32 numbers; the addend tips it by less than float64 can hold
    tie = exact.fma32(F([4097.0, 4097.0]), F([4097.0, 4097.0]), F([2.0**-40, -(2.0**-40)]))
    assert tie.tolist() == [16785410.0, 16785408.0]


def test_fma_of_special_values():
    a, b, c = np.meshgrid(SPECIAL, SPECIAL, SPECIAL)
    check_fma(a.ravel(), b.ravel(), c.ravel())


@given(bits, bits, bits)
def test_fma_of_drawn_bits(a, b, c):
    check_fma(*(np.array([v], np.uint32).view(F) for v in (a, b, c)))


def test_fma_broadcasts_and_works_in_pieces():
    a, b, c = floats(8, 700)[:, None], floats(9, 90)[None, :], floats(10, 90)
    whole = exact.fma32(a, b, c)
    assert whole.shape == (700, 90)
    rows = np.stack([exact.fma32(a[i], b[0], c) for i in range(700)])
    assert same(whole, rows)


def test_half_rounds_ties_to_even_and_keeps_subnormals():
    x = F([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.9, 65520.0, 2.0**-24, 2.0**-25, 3 * 2.0**-25])
    expected = [1.0, 1 + 2.0**-9, 65504.0, np.inf, 2.0**-24, 0.0, 2.0**-23]
    assert exact.to_half(x).tolist() == expected


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_float_to_int_saturates_and_rounds_to_even(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = F([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.5, 1.5, 2.5, 126.5])
    expected = [0, high, low, high, low, 0, 2, 2, 126]
    assert exact.cast(x, np.dtype(dtype)).tolist() == expected
    negative = exact.cast(F([-0.5, -1.5]), np.dtype(dtype)).tolist()
    assert negative == [0, -2 if low < 0 else 0]


def test_casts_between_integers_keep_the_low_bits():
    x = np.array([300, -1, 128], np.int32)
    assert exact.cast(x, np.dtype(np.int8)).tolist() == [44, -1, -128]
    assert exact.cast(x, np.dtype(np.uint32)).tolist() == [300, 2**32 - 1, 128]


def test_int_to_float_rounds_to_even():
    x = np.array([2**24 + 1, 2**24 + 3, -(2**31)], np.int32)
    assert exact.cast(x, np.dtype(F)).tolist() == [2**24, 2**24 + 4, -(2.0**31)]


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integer_division_truncates(a, b):
    x, y = np.array([a], np.int32), np.array([b], np.int32)
    quotient = 0 if b == 0 else int(Fraction(a, b).__trunc__())
    remainder = 0 if b == 0 else a - quotient * b
    if quotient == 2**31:
        quotient = -(2**31)
    assert exact.divide(x, y)[0] == quotient
    assert exact.modulo(x, y)[0] == remainder


def test_unsigned_division():
    x, y = np.array([2**32 - 1, 7, 5], np.uint32), np.array([2**31, 2, 0], np.uint32)
    assert exact.divide(x, y).tolist() == [1, 3, 0]
    assert exact.modulo(x, y).tolist() == [2**31 - 1, 1, 0]


def test_shift_counts_are_taken_mod_32():
    x = np.array([-8, -8, 1, 1], np.int32)
    count = np.array([1, 33, 31, -1], np.int32)
    assert exact.shift_right(x, count).tolist() == [-4, -4, 0, 0]
    assert exact.shift_left(x, count).tolist() == [-16, -16, -(2**31), -(2**31)]
    assert exact.shift_right(x.view(np.uint32), count.view(np.uint32))[0] == 2**31 - 4


def greater(a: float, b: float) -> float:
    if np.isnan(a) or np.isnan(b):
        return np.nan
    return max(a, b, key=lambda v: (v, not np.signbit(v)))


def lesser(a: float, b: float) -> float:
    return -greater(-a, -b)


def test_min_and_max_order_zeros_and_let_nan_win():
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    pairs = list(zip(a, b, strict=True))
    assert same(exact.maximum(a, b), F([greater(x, y) for x, y in pairs]))
    assert same(exact.minimum(a, b), F([lesser(x, y) for x, y in pairs]))


@given(st.lists(st.sampled_from(range(len(SPECIAL))), min_size=1, max_size=6))
def test_reductions_to_an_extreme_equal_the_pairwise_rule(picks):
    x = SPECIAL[picks]
    high, low = F(-np.inf), F(np.inf)
    for value in x:
        high, low = F(greater(high, value)), F(lesser(low, value))
    assert same(exact.reduce_max(x[None], 1), F([high]))
    assert same(exact.reduce_min(x[None], 1), F([low]))
    first = next(i for i, v in enumerate(x) if same(F([v]), F([high])))
    assert exact.reduce_argmax(x[None], 1).tolist() == [first]


def test_negative_nan_wins_too():
    x = np.array([0xFFC00000, 0x3F800000, 0x7F800000], np.uint32).view(F)[None]
    assert np.isnan(exact.reduce_max(x, 1)) and np.isnan(exact.reduce_min(x, 1))
    assert exact.reduce_argmax(x, 1).tolist() == [0]


def canonical_sum(values: list[np.float32]) -> np.float32:
    """The rule of the language, one addition at a time."""
    sums = []
    for start in range(0, max(len(values), 1), 4096):
        partials = [F(0)] * 32
        for i, value in enumerate(values[start : start + 4096]):
            partials[i % 32] = F(partials[i % 32] + value)
        for half in (16, 8, 4, 2, 1):
            partials = [F(partials[p] + partials[p + half]) for p in range(half)]
        sums.append(partials[0])
    total = sums[0]
    for value in sums[1:]:
        total = F(total + value)
    return total


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 700, 4096, 4097, 9000])
def test_sums_have_one_order(n):
    x = np.random.default_rng(n).standard_normal((2, n)).astype(F)
    expected = F([canonical_sum(list(row)) for row in x])
    assert same(exact.reduce_sum(x, 1), expected)
    assert same(exact.reduce_sum(np.ascontiguousarray(x.T), 0), expected)


def test_a_sum_of_negative_zeros_is_positive():
    assert same(exact.reduce_sum(np.full((1, 64), -0.0, F), 1), F([0.0]))


def test_integer_sums_wrap():
    x = np.array([[2**31 - 1, 1, 5]], np.int32)
    assert exact.reduce_sum(x, 1).tolist() == [-(2**31) + 5]


def test_streaming_sum_equals_the_sum_at_once():
    x = np.random.default_rng(0).standard_normal(4096).astype(F)
    for size in (32, 256, 1024):
        state = np.zeros(32, F)
        for start in range(0, 4096, size):
            state = exact.accumulate(state, x[start : start + size], 0)
        assert same(exact.finish(state[None]), exact.reduce_sum(x[None], 1))


def test_dot_f32_is_a_chain_of_fma():
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(s).astype(F) for s in ((3, 5), (5, 4), (3, 4)))
    expected = c
    for k in range(5):
        expected = exact.fma32(a[:, k, None], b[k], expected)
    assert same(exact.dot_f32(a, b, c), expected)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 40), (40, 7)),
        ((5, 1, 3, 32), (1, 4, 32, 7)),
        ((5, 4, 2, 32), (5, 1, 32, 7)),
        ((2, 3, 4, 32), (2, 3, 32, 5)),
        ((1, 6, 2, 32), (1, 1, 32, 3)),
        ((2, 2050), (2050, 3)),
    ],
)
def test_dot_i8_is_exact(a, b):
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, a).astype(np.int8)
    y = rng.integers(-128, 128, b).astype(np.int8)
    product = exact.dot_i8(x, y)
    assert product.dtype == np.int32
    assert (product == np.matmul(x.astype(np.int64), y.astype(np.int64))).all()


def test_dot_i8_of_extremes():
    x = np.full((1, 4096), -128, np.int8)
    assert exact.dot_i8(x, x.T).tolist() == [[4096 * 128 * 128]]
