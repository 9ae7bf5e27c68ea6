"""The sampler: llama.cpp's candidates, exact arithmetic, draws that depend on their place only."""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections import Counter
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ferro.models import likelihoods, random_numbers, sampler
from ferro.models.likelihoods import BITS, LEAST, weigh
from ferro.models.random_numbers import draw, philox
from ferro.models.sampler import BadLogits, BadSampling, Sampler, Sampling

RECORDED = Path(__file__).parents[1] / "data" / "sampler.json"
OPEN = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=7)


def options(**changes: Any) -> Sampling:
    """No filter and no penalty, but for ``changes``."""
    return Sampling(**{"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 7, **changes})


def logits(count: int, turn: int = 0) -> np.ndarray:
    """Numbers from -8 to 8 that are the same everywhere."""
    mixed = (np.arange(count, dtype=np.int64) * 2654435761 + turn * 40503) % 4093
    return mixed.astype(np.float32) / np.float32(256) - np.float32(8)


# ---------------------------------------------------------------------------------- llama.cpp


def test_candidates_are_llama_cpp_s() -> None:
    """Its chain: bias, penalties, top-k, top-p, min-p, temperature."""
    for row in json.loads(RECORDED.read_text()):
        given_options = dict(row["options"])
        biases = {int(token): bias for token, bias in given_options.pop("logit_bias").items()}
        chosen = Sampling(**given_options, logit_bias=biases, seed=0)
        x = np.array(row["logits"], np.float32)
        ids, found = Sampler(chosen, len(x), row["past"]).candidates(x)
        assert ids.tolist() == [token for token, _ in row["candidates"]], row["options"]
        shares = found / found.sum()
        assert np.abs(shares - [share for _, share in row["candidates"]]).max() < 2e-6


# -------------------------------------------------------------------------------- the filters


def test_nothing_is_filtered_without_filters() -> None:
    x = logits(300)
    ids, found = Sampler(OPEN, 300).candidates(x)
    assert sorted(ids.tolist()) == list(range(300))
    assert np.abs(found - np.exp(x.astype(np.float64) - x.max())[ids] * 2**BITS).max() < 1.01


@pytest.mark.parametrize("top_k", [1, 2, 7, 299, 300, 1000])
def test_top_k(top_k: int) -> None:
    x = logits(300)
    ids, _ = Sampler(options(top_k=top_k), 300).candidates(x)
    assert ids.tolist() == np.argsort(-x, kind="stable")[:top_k].tolist()


def test_of_equal_logits_the_lowest_ids_are_kept() -> None:
    x = np.array([1, 3, 2, 3, 2, 2, 3], np.float32)
    assert Sampler(options(top_k=5), 7).candidates(x)[0].tolist() == [1, 3, 6, 2, 4]
    assert Sampler(options(temperature=0), 7).choose(x) == 1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_least_that_reach_the_share(share: float) -> None:
    _, every = Sampler(OPEN, 300).candidates(logits(300))
    _, kept = Sampler(options(top_p=share), 300).candidates(logits(300))
    whole = int(every.sum())
    assert len(kept) >= 1 and int(kept.sum()) >= share * whole
    assert len(kept) == 1 or int(kept[:-1].sum()) < share * whole


def test_top_p_of_equal_candidates_counts_exactly() -> None:
    x = np.zeros(8, np.float32)
    for count in range(1, 9):
        kept, _ = Sampler(options(top_p=count / 8), 8).candidates(x)
        assert kept.tolist() == list(range(count))


def test_min_p() -> None:
    x = np.log(np.array([1.0, 0.5, 0.251, 0.249, 0.01], np.float64)).astype(np.float32)
    assert Sampler(options(min_p=0.25), 5).candidates(x)[0].tolist() == [0, 1, 2]
    assert Sampler(options(min_p=1.0), 5).candidates(x)[0].tolist() == [0]


def test_temperature_comes_last() -> None:
    x = logits(300)
    hot, cold = (Sampler(options(top_p=0.7, temperature=t), 300).candidates(x) for t in (9, 0.5))
    assert hot[0].tolist() == cold[0].tolist()
    assert hot[1][-1] > cold[1][-1]


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 0.001])
def test_low_temperatures_take_the_best(temperature: float) -> None:
    ids, _ = Sampler(options(temperature=temperature), 300).candidates(logits(300))
    assert ids.tolist() == [int(np.argmax(logits(300)))]


def test_a_high_temperature_reaches_far() -> None:
    x = np.array([0, -200, -3000], np.float32)
    assert Sampler(options(temperature=20), 3).candidates(x)[0].tolist() == [0, 1]


# -------------------------------------------------------------------------------- adjustments


def adjusted(chosen: Sampling, x: list[float], prompt: list[int], later: list[int]) -> list[float]:
    made = Sampler(chosen, len(x), prompt)
    for token in later:
        made.accept(token)
    return made._adjusted(np.array(x, np.float32), None).tolist()


def test_penalties() -> None:
    given_options = options(repeat_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    found = adjusted(given_options, [4.0, -4.0, 1.0, 0.0], [0, 0], [1, 3])
    assert found == [2 - 1.25, -8 - 0.75, 1.0, -0.75]


def test_the_window_of_penalties() -> None:
    for last, expected in ((-1, [1, 1, 1, 1]), (2, [2, 2, 1, 1]), (3, [2, 1, 1, 1]), (0, [2] * 4)):
        chosen = options(repeat_penalty=2.0, repeat_last_n=last)
        assert adjusted(chosen, [2.0] * 4, [0, 1], [2, 3]) == expected


def test_the_prompt_can_be_left_out() -> None:
    chosen = options(repeat_penalty=2.0, penalise_prompt=False)
    assert adjusted(chosen, [2.0] * 4, [0, 1], [2]) == [2, 2, 1, 2]


def test_media_in_the_prompt_are_no_tokens() -> None:
    assert adjusted(options(repeat_penalty=2.0), [2.0] * 3, [-1, 99, 1], []) == [2, 1, 2]


def test_bias_comes_before_penalties() -> None:
    chosen = options(repeat_penalty=2.0, logit_bias={1: 4.0})
    assert adjusted(chosen, [1.0, -2.0], [1], []) == [1.0, 1.0]


def test_tokens_can_be_ruled_out() -> None:
    x = logits(50)
    best = int(np.argmax(x))
    allowed = np.ones(50, np.bool_)
    allowed[best] = False
    for chosen in (options(temperature=0), options(top_k=3)):
        assert Sampler(chosen, 50).choose(x, allowed) != best
        banned = Sampler(options(temperature=0, logit_bias={best: -math.inf}), 50)
        assert banned.choose(x) != best
    allowed[:] = False
    allowed[11] = True
    assert Sampler(OPEN, 50).choose(x, allowed) == 11


@given(
    arrays.arrays(np.float32, 20, elements=st.floats(-80, 80, width=32)),
    st.integers(0, 25),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 4),
)
def test_any_finite_logits_give_a_token(
    x: np.ndarray, top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    before = x.copy()
    chosen = Sampling(
        temperature, top_k, top_p, min_p, repeat_penalty=1.3, frequency_penalty=0.1, seed=3
    )
    made = Sampler(chosen, 20, [1, 2, 3])
    for _ in range(3):
        assert 0 <= made.sample(x) < 20
    assert np.array_equal(x, before)


# ----------------------------------------------------------------------------------- draws


def test_philox_s_known_answers() -> None:
    """From the authors' Random123."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox(pi, (0xA4093822, 0x299F31D0)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_each_place_has_its_number() -> None:
    places = [(s, c, p) for s in (0, 1, 1 << 63) for c in (0, 1) for p in (0, 1, 1 << 40)]
    assert len({draw(*place) for place in places}) == len(places)
    assert draw(-1, 0, 0) == draw((1 << 64) - 1, 0, 0)


def drawn(seed: int, stream: int, count: int = 30) -> list[int]:
    made = Sampler(options(seed=seed), 40, stream=stream)
    return [made.sample(logits(40, turn)) for turn in range(count)]


def test_a_seed_gives_the_same_tokens_everywhere() -> None:
    assert drawn(1234, 0) == drawn(1234, 0)
    assert drawn(1234, 0, 12) == KNOWN
    assert drawn(1234, 0) != drawn(1235, 0) and drawn(1234, 0) != drawn(1234, 1)


KNOWN = [13, 25, 33, 27, 12, 29, 39, 26, 8, 33, 0, 35]


def test_a_draw_depends_on_its_position_only() -> None:
    made = Sampler(OPEN, 40)
    made.accept(3)
    made.accept(5)
    assert made.position == 2
    again = Sampler(OPEN, 40)
    for _ in range(2):
        again.sample(logits(40, 9))
    assert made.sample(logits(40)) == again.sample(logits(40))


def test_choosing_does_not_take() -> None:
    made = Sampler(OPEN, 40)
    assert made.choose(logits(40)) == made.choose(logits(40)) == made.sample(logits(40))


def test_without_a_seed_one_is_drawn_and_told() -> None:
    seeds = {Sampler(options(seed=None), 40).seed for _ in range(4)}
    assert len(seeds) == 4


def test_draws_follow_the_weights() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    x = np.log(shares).astype(np.float32)
    made = Sampler(OPEN, 4)
    counts = Counter(made.sample(x) for _ in range(4000))
    for token, share in enumerate(shares):
        spread = math.sqrt(4000 * share * (1 - share))
        assert abs(counts[token] - 4000 * share) < 4 * spread


# ---------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"temperature": -0.1}, "temperature must be from 0 to 1000"),
        ({"temperature": math.nan}, "temperature must be a finite number"),
        ({"temperature": math.inf}, "temperature must be a finite number"),
        ({"top_p": 1.1}, "top_p must be from 0 to 1"),
        ({"min_p": -0.5}, "min_p must be from 0 to 1"),
        ({"top_k": -1}, "top_k must be at least 0"),
        ({"repeat_penalty": 0.0}, "repeat_penalty must be finite and above 0"),
        ({"repeat_penalty": math.nan}, "repeat_penalty must be finite and above 0"),
        ({"repeat_last_n": -2}, "repeat_last_n must be at least -1"),
        ({"presence_penalty": math.inf}, "presence_penalty must be a finite number"),
        ({"logit_bias": {1: math.nan}}, "logit_bias must be numbers below infinity"),
        ({"logit_bias": {1: math.inf}}, "logit_bias must be numbers below infinity"),
    ],
)
def test_options_that_mean_nothing(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSampling, match=problem) as caught:
        Sampling(**changes)
    assert caught.value.exit_code == 2


def test_a_bias_for_no_token() -> None:
    with pytest.raises(BadSampling, match="there is no token 40"):
        Sampler(options(logit_bias={40: 1.0}), 40)


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        (np.full(4, np.nan, np.float32), "not finite"),
        (np.array([0, np.nan, 1, 2], np.float32), "not finite"),
        (np.array([0, np.inf, 1, 2], np.float32), "not finite"),
        (np.full(4, -np.inf, np.float32), "every token is ruled out"),
        (np.zeros(5, np.float32), r"logits of shape \[5\] for 4 tokens"),
        (np.zeros((1, 4), np.float32), r"logits of shape \[1, 4\] for 4 tokens"),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_from_which_nothing_can_be_chosen(
    x: np.ndarray, problem: str, temperature: float
) -> None:
    with pytest.raises(BadLogits, match=problem):
        Sampler(options(temperature=temperature), 4).sample(x)


# ------------------------------------------------------------------------------- exactness


def test_weights_against_decimal_arithmetic() -> None:
    x = -np.arange(0, 4000, dtype=np.float64) / 137
    with localcontext(prec=40):
        exact = [int(Decimal(value).exp() * (1 << BITS)) for value in x.tolist()]
    assert np.abs(weigh(x) - exact).max() <= 1
    assert weigh(np.zeros(1)).tolist() == [1 << BITS]
    assert weigh(np.array([LEAST, -1e30, -np.inf])).tolist() == [0, 0, 0]
    assert weigh(np.array([-1.0, -2.0]), 1e-310).tolist() == [0, 0]
    assert np.array_equal(weigh(x, 2.0), weigh(x / 2))


def test_weights_keep_their_bits() -> None:
    x = -(np.arange(20000, dtype=np.float64) ** 2) / (1 << 24)
    digest = hashlib.sha256(weigh(x).astype("<i8").tobytes()).hexdigest()
    assert digest == DIGEST


DIGEST = "34dab5535b4080d4b439cddaf6d85c436251c8cc7a94fcace8d679e3cd32a4a3"


INEXACT = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh power cbrt mean average std var sum"
    " cumsum prod cumprod dot matmul einsum inner vdot tensordot linalg".split()
)


@pytest.mark.parametrize("module", [sampler, likelihoods, random_numbers])
def test_nothing_inexact_of_numpy_is_used(module: Any) -> None:
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Attribute):
            assert node.attr not in INEXACT, f"line {node.lineno}"
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
