"""Likelihoods: right to the last digits, and the same ones everywhere."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest

from ferro.serve.logprobs import likely

KNOWN = ["-7.5010115041309859", "-2.6910115613514449", "-4.1910120381886031"]


def wanted(logits: np.ndarray, token: int) -> float:
    """In decimal arithmetic of many digits."""
    getcontext().prec = 50
    values = [Decimal(float(x)) for x in logits if np.isfinite(x)]
    return float(Decimal(float(logits[token])) - sum(v.exp() for v in values).ln())


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_they_are_logarithms_of_the_softmax(scale: float) -> None:
    x = (np.random.default_rng(1).standard_normal(500) * scale).astype(np.float32)
    for token in (0, 7, int(np.argmax(x)), int(np.argmin(x))):
        assert math.isclose(likely(x, token, 0).logprob, wanted(x, token), abs_tol=1e-8)


def test_the_likeliest_come_first_and_of_equal_ones_the_lower() -> None:
    x = np.array([0, 5, 2, 5, -1], np.float32)
    assert [token for token, _ in likely(x, 0, 3).top] == [1, 3, 2]
    assert len(likely(x, 0, 20).top) == 5 and likely(x, 0, 0).top == ()


def test_a_token_that_is_ruled_out_has_no_chance() -> None:
    assert likely(np.array([0, -np.inf], np.float32), 1, 0).logprob == -math.inf


def test_a_certain_token_has_zero() -> None:
    assert likely(np.array([90, 0, 0], np.float32), 0, 0).logprob == 0.0


def test_the_digits_are_known_ones() -> None:
    x = (np.arange(64, dtype=np.float32) * np.float32(0.37)) % np.float32(5)
    assert [f"{likely(x, i, 0).logprob:.17g}" for i in (0, 13, 63)] == KNOWN
