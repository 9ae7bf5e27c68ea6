"""Tables of angles: against decimal arithmetic, and the same bits everywhere."""

from __future__ import annotations

import hashlib
from decimal import Decimal, localcontext

import numpy as np
import pytest

from ferro.models.rope import TURN, Rotation, tables


def series(x: Decimal, first: Decimal, n: int) -> Decimal:
    """first - first x^2 / (n (n + 1)) + ...: the cosine from (1, 1), the sine from (x, 2)."""
    term, total = first, first
    while abs(term) > Decimal(10) ** -55:
        term = -term * x * x / (n * (n + 1))
        total, n = total + term, n + 2
    return total


def cos_sin(turns: Decimal) -> tuple[Decimal, Decimal]:
    x = (turns % 1) * TURN
    x = x - TURN if x > TURN / 2 else x
    return series(x, Decimal(1), 1), series(x, x, 2)


def ulps(found: float, true: Decimal) -> float:
    return float(
        abs(Decimal(float(found)) - true) / Decimal(float(np.spacing(np.float32(abs(true)))))
    )


ROTATIONS = [
    Rotation(1e4, 64),
    Rotation(1e5, 64),
    Rotation(1e6, 256),
    Rotation(1e6, 64, 8.0),
    Rotation(500000.0, 128),
]


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
def test_within_0_51_ulp_of_the_true_values(rotation: Rotation) -> None:
    cos, sin = tables(rotation, 40000)
    random = np.random.default_rng(0)
    half = rotation.dimensions // 2
    places = [(p, i) for p in (0, 1, 2, 39999) for i in (0, 1, half - 1)]
    places += zip(random.integers(0, 40000, 200), random.integers(0, half, 200), strict=True)
    with localcontext() as context:
        context.prec = 60
        step = Decimal(rotation.base).ln() * 2 / rotation.dimensions
        for p, i in places:
            turns = int(p) * (-step * int(i)).exp() / Decimal(rotation.factor) / TURN
            true = cos_sin(turns)
            assert ulps(cos[p, i], true[0]) < 0.51 and ulps(sin[p, i], true[1]) < 0.51


def test_quarter_turns_have_their_signs() -> None:
    # a frequency of a quarter of a turn: 4 / (2 pi) positions a turn
    quarter = Rotation(10.0, 2, float(4 / TURN))
    cos, sin = tables(quarter, 9)
    assert np.rint(cos[:, 0]).tolist() == [1, 0, -1, 0, 1, 0, -1, 0, 1]
    assert np.rint(sin[:, 0]).tolist() == [0, 1, 0, -1, 0, 1, 0, -1, 0]


def test_the_first_position_does_not_turn() -> None:
    cos, sin = tables(Rotation(1e6, 64), 1)
    assert (cos == 1).all() and (sin == 0).all() and not np.signbit(sin).any()


def test_a_table_does_not_depend_on_its_length() -> None:
    long, short = tables(Rotation(1e5, 64), 5000), tables(Rotation(1e5, 64), 100)
    for a, b in zip(long, short, strict=True):
        assert a.shape == (5000, 32) and (a[:100] == b).all()


def test_scaled_positions_are_positions_between() -> None:
    whole, scaled = tables(Rotation(1e5, 64), 100), tables(Rotation(1e5, 64, 4.0), 400)
    for a, b in zip(whole, scaled, strict=True):
        assert (a == b[::4]).all()


def test_divisors_slow_their_pairs() -> None:
    plain, slowed = tables(Rotation(1e4, 4), 80), tables(Rotation(1e4, 4), 80, [1.0, 8.0])
    for a, b in zip(plain, slowed, strict=True):
        assert (a[:, 0] == b[:, 0]).all() and (a[:10, 1] == b[::8, 1]).all()


def test_the_bits_are_known() -> None:
    """On whatever machine: of SmolLM2's, Gemma 3's and LFM2's tables."""
    digest = hashlib.sha256()
    for rotation in (Rotation(1e5, 64), Rotation(1e4, 256), Rotation(1e6, 64)):
        for table in tables(rotation, 2048):
            digest.update(table.astype("<f4").tobytes())
    assert digest.hexdigest() == "87875fbb03f2840b4b3211375de501cadb68ebc6903cfa6d2867d97c6a5a37f2"
