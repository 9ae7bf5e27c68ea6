"""The mathematical functions of the language against float64, over all binades."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from ferro.dsl import ir
from ferro.dsl.interpreter import interpret
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.library import FUNCTIONS
from tests.conformance import binades
from tests.stacks import FULL

F = np.float32
Array = np.ndarray
SMALLEST = 2.0**-126
DENSITY = 10 if FULL else 1
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        2.0**-149,
        -(2.0**-149),
        SMALLEST,
        3.4028235e38,
    ],
    F,
)

SOURCE = """
@kernel
def apply(a: tl.ptr[f32, N], b: tl.ptr[f32, N], y: tl.out[f32, N]):
    i = tl.block(0, N, 1024)
    u = tl.load(a[i], mask=i < N)
    v = tl.load(b[i], mask=i < N)
    tl.store(y[i], CALL, mask=i < N)
"""


@cache
def applied(name: str) -> ir.Kernel:
    call = f"tl.{name}(u, v)" if name == "div" else f"tl.{name}(u)"
    return KernelDefinition.from_source(SOURCE.replace("CALL", call), f"<{name}>").specialise()


def call(name: str, a: Array, b: Array | None = None) -> Array:
    y = np.zeros_like(a)
    buffers = {"a": a, "b": a if b is None else b, "y": y}
    interpret(applied(name), buffers, {"N": a.size}, (-(-a.size // 1024),))
    return y


def between(low: float, high: float, count: int = 100_000 * DENSITY) -> Array:
    return np.random.default_rng(1).uniform(low, high, count).astype(F)


def flushed(x: Array) -> Array:
    """float64 results with 0 of the same sign for those that are subnormal in float32."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(0.0, x), x)


def largest_error(y: Array, exact: Array) -> float:
    """The largest error in units of the last place of the float32 nearest to ``exact``.

    NaN, infinities and zeros must agree, signs of zeros included.
    """
    with np.errstate(all="ignore"):
        nearest = exact.astype(F)
    assert (np.isnan(y) == np.isnan(exact)).all()
    plain = np.isfinite(nearest) & (nearest != 0)
    other = ~plain & ~np.isnan(exact)
    assert (y[other].view(np.int32) == nearest[other].view(np.int32)).all()
    assert np.isfinite(y[plain]).all() and (y[plain] != 0).all()
    unit = np.spacing(np.abs(nearest[plain])).astype(np.float64)
    return float((np.abs(y[plain].astype(np.float64) - exact[plain]) / unit).max(initial=0.0))


def check(name: str, x: Array, exact: Callable[[Array], Array], bound: float) -> None:
    with np.errstate(all="ignore"):
        expected = flushed(exact(x.astype(np.float64)))
    assert largest_error(call(name, x), expected) <= bound


def sigmoid(x: Array) -> Array:
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z / (1 + z), 1 / (1 + z))


erf = np.vectorize(math.erf, otypes=[np.float64])
BOUNDS = {"rsqrt": 0.51, "exp": 0.9, "log": 0.95, "tanh": 1.45, "erf": 1.1, "sigmoid": 1.5}
EXACT: dict[str, Callable[[Array], Array]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": sigmoid,
}
DENSE = {
    "rsqrt": (1, 4), "exp": (-88, 89), "log": (0.4, 3), "tanh": (-10, 10), "erf": (-4.5, 4.5),
    "sigmoid": (-20, 20),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_error_over_all_binades(name):
    x = binades(100 * DENSITY)
    if name == "rsqrt":  # numpy gives 1 / sqrt(-0.0) = -inf and NaN below, as wanted
        assert largest_error(call(name, F([-0.0])), np.array([-np.inf])) == 0
    check(name, x, EXACT[name], BOUNDS[name])


@pytest.mark.parametrize("name", BOUNDS)
def test_error_where_it_matters(name):
    check(name, between(*DENSE[name]), EXACT[name], BOUNDS[name])
    check(name, between(-1, 1), EXACT[name], BOUNDS[name])


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine_within_their_range(name, exact):
    x = binades(200 * DENSITY)
    check(name, x[np.abs(x) <= 2**20], exact, 1.75)
    check(name, between(-(2**20), 2**20), exact, 1.75)
    check(name, between(-100, 100), exact, 0.9)


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine_next_to_multiples_of_a_quarter_turn(name, exact):
    near = (np.arange(1, 2**20 / (np.pi / 2), 7) * np.pi / 2).astype(F)
    x = np.concatenate([near, np.nextafter(near, F(0)), np.nextafter(near, F(1e9))])
    check(name, x[x <= 2**20], exact, 0.9)


def test_sine_and_cosine_beyond_their_range_are_nan():
    x = np.nextafter(F([2**20, -(2**20)]), F([np.inf, -np.inf]))
    x = np.concatenate([x, F([3e38, np.inf])])
    assert np.isnan(call("sin", x)).all() and np.isnan(call("cos", x)).all()
    assert not np.isnan(call("cos", F([2**20]))).any()


def quotients(a: Array, b: Array) -> None:
    with np.errstate(all="ignore"):
        expected = (a / b).astype(F)
        subnormal = np.abs(a.astype(np.float64) / b) < SMALLEST * (1 - 2.0**-25)
        expected = np.where(subnormal, np.copysign(F(0), expected), expected)
    y = call("div", a, b)
    same = (y.view(np.int32) == expected.view(np.int32)) | (np.isnan(y) & np.isnan(expected))
    assert same.all(), (a[~same][:3], b[~same][:3], y[~same][:3], expected[~same][:3])


def test_division_is_correctly_rounded():
    rng = np.random.default_rng(2)
    quotients(binades(400 * DENSITY, 3), rng.permutation(binades(400 * DENSITY, 4)))
    quotients(*(v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL)))


def test_division_by_the_hardest_mantissas():
    numerators = between(1, 2, 50_000)
    numerators[:3] = 1, np.nextafter(F(1), F(2)), np.nextafter(F(2), F(1))
    for divisor in (1, np.nextafter(F(1), F(2)), np.nextafter(F(2), F(1)), 3, 7, 127):
        quotients(numerators, np.full_like(numerators, divisor))


def test_square_root_is_correctly_rounded():
    x = np.concatenate([binades(300 * DENSITY), between(1, 4), SPECIAL])
    with np.errstate(all="ignore"):
        expected = np.sqrt(x)
    y = call("sqrt", x)
    assert (
        (y.view(np.int32) == expected.view(np.int32)) | (np.isnan(y) & np.isnan(expected))
    ).all()


@pytest.mark.parametrize("name", [*BOUNDS, "sin", "cos"])
def test_special_values(name):
    exact = {**EXACT, "sin": np.sin, "cos": np.cos}[name]
    x = SPECIAL if name not in ("sin", "cos") else SPECIAL[:-1]
    check(name, x, exact, 1.0)


def test_exp_at_the_ends_of_its_range():
    x = F([88.72283, 88.72284, -87.33654, -87.33655, 1000, -1000])
    y = call("exp", x)
    assert np.isfinite(y[0]) and y[1] == np.inf and y[2] >= F(SMALLEST)
    assert y[3:].tolist() == [0, np.inf, 0]


def test_results_are_never_subnormal():
    x = np.concatenate([binades(20 * DENSITY), -np.geomspace(80, 110, 2000).astype(F)])
    for name in FUNCTIONS:
        y = call(name, x, x[::-1].copy())
        assert not ((y != 0) & (np.abs(y) < SMALLEST)).any(), name


def test_the_functions_of_the_library_are_those_of_the_language():
    from ferro.dsl.language import LIBRARY

    assert sorted(FUNCTIONS) == sorted(LIBRARY)
