"""Scores to answers: temperatures, probabilities, confidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.decisions import answers, requests
from ferro.models.decisions.deciding import Asked
from ferro.models.decisions.errors import DecisionError
from ferro.models.decisions.prompts import Prompts
from tests.models import vocabularies
from tests.models.decisions.test_requests import YES_OR_NO, body, choice

SCORES = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20)
TEMPERATURES = {"choice": 1.5, "choice.3_5": 1.25, "score": 2.0, "noul.2": 0.5}


def question(given: Any) -> Any:
    return requests.read(body(given)).questions[0]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (1, "2"),
        (2, "2"),
        (3, "3_5"),
        (5, "3_5"),
        (6, "6_10"),
        (10, "6_10"),
        (11, "11"),
        (255, "11"),
    ],
)
def test_buckets(options: int, name: str) -> None:
    assert answers.bucket(options) == name


def test_the_bucket_comes_before_the_type_before_1() -> None:
    few, many = (question(choice(**dict.fromkeys(map(str, range(n))))) for n in (3, 6))
    levels = question({"type": "score", "instructions": "x", "criteria": ["a", "b"]})
    of = answers.temperature
    assert of(few, TEMPERATURES, False) == 1.25 and of(many, TEMPERATURES, False) == 1.5
    assert of(levels, TEMPERATURES, False) == 2.0
    assert of(question(YES_OR_NO), TEMPERATURES, False) == 0.5
    assert of(question(YES_OR_NO), {}, False) == 1.0
    assert of(few, TEMPERATURES, True) == 1.0


@given(SCORES, st.floats(0.125, 10, width=32))
def test_probabilities_are_a_softmax(scores: list[float], temperature: float) -> None:
    array = np.array(scores, np.float32)
    found = answers.probabilities(array, temperature)
    below = (array - array.max()).astype(np.float64) / temperature
    expected = np.exp(below) / np.exp(below).sum()
    assert np.allclose(found, expected, rtol=1e-14, atol=0)
    assert math.isclose(sum(found), 1, rel_tol=1e-12)


def test_the_difference_is_taken_in_float32() -> None:
    scores = np.array([2.0**25, 1.0, 0.0], np.float32)
    first, second, third = answers.probabilities(scores, 1e7)
    assert second / first == pytest.approx(math.exp(-(2**25) / 1e7), rel=1e-14)
    assert second == third


def test_extremes_are_0_and_1() -> None:
    assert answers.probabilities(np.array([0, -3e38], np.float32), 0.1) == [1.0, 0.0]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_the_models_fault(score: float) -> None:
    with pytest.raises(DecisionError, match="not finite") as caught:
        answers.probabilities(np.array([0, score], np.float32), 1.0)
    assert (caught.value.status, caught.value.kind, caught.value.exit_code) == (
        500,
        "server_error",
        1,
    )


def test_a_choice_is_its_first_best_option() -> None:
    found = answers.answer(question(choice(c="x", b=None, a=None)), [0.4, 0.4, 0.2])
    assert list(found) == ["type", "choice", "probabilities", "confidence"]
    assert found["choice"] == "c" and list(found["probabilities"]) == ["c", "b", "a"]
    assert found["confidence"] == pytest.approx((0.4 - 1 / 3) / (2 / 3), abs=1e-15)
    assert answers.answer(question(choice(a=1)), [1.0])["confidence"] == 1.0


def test_a_score_is_the_mean_level_and_keeps_descriptions_as_they_are() -> None:
    asked = {"type": "score", "instructions": "x", "criteria": ["<|low|>", {"a": 1.0}, None]}
    found = answers.answer(question(asked), [0.2, 0.5, 0.3])
    assert list(found) == ["type", "score", "legend", "probabilities", "confidence"]
    assert found["score"] == pytest.approx(1.1, abs=1e-15)
    assert found["legend"] == {"0": "<|low|>", "1": {"a": 1.0}, "2": None}
    assert found["confidence"] == pytest.approx(1 - 0.5 / (2 / 3), abs=1e-15)


def test_yes_or_no_is_the_probability_of_true() -> None:
    assert answers.answer(question(YES_OR_NO), [0.3, 0.7]) == {"type": "noul", "noul": 0.7}


@given(SCORES)
def test_confidence_is_from_0_to_1(scores: list[float]) -> None:
    shares = answers.probabilities(np.array(scores, np.float32), 1.0)
    assert 0 <= answers.choice_confidence(shares) <= 1
    if len(shares) > 1:
        assert 0 <= answers.score_confidence(shares) <= 1
        assert 0 <= answers.expected(shares) <= len(shares) - 1 + 1e-9


def test_a_reply_has_its_parts_in_order() -> None:
    given = {"state": "s", "questions": {"<|q|>": choice(**{"<|k|>": 1}), "a": YES_OR_NO}}
    asked = Asked.of(requests.read(given), Prompts(vocabularies.tokenizer("lfm2"), 4096))
    scores = [np.array([1], np.float32), np.array([0, 0], np.float32)]
    found = asked.reply("m", scores, {})
    assert list(found) == ["model", "answers", "usage"] and list(found["answers"]) == ["<|q|>", "a"]
    assert found["answers"]["<|q|>"]["choice"] == "<|k|>"
    assert found["answers"]["a"]["noul"] == 0.5
    tokens = sum(map(len, asked.inputs))
    assert found["usage"] == {"input_tokens": tokens, "output_tokens": 0}
