"""Scores to answers: temperatures, probabilities, confidence (spec: systemone, section 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.models.decisions.errors import broken
from ferro.models.decisions.questions import TRUE, Question, Type

_EXACT = Context(prec=40, traps=[])
_LEAST = -800.0  # e^-800 is 0 as a double


def bucket(options: int) -> str:
    """What temperatures for that many options go by."""
    return next(name for most, name in ((2, "2"), (5, "3_5"), (10, "6_10"), (math.inf, "11"))
                if options <= most)  # fmt: skip


def temperature(question: Question, temperatures: Mapping[str, float], media: bool) -> float:
    """That of a question: its type's for so many options, else its type's, else 1. With media it
    is 1."""
    if media:
        return 1.0
    name = question.type.word
    return temperatures.get(f"{name}.{bucket(len(question.options))}", temperatures.get(name, 1.0))


def probabilities(scores: npt.NDArray[np.float32], temperature: float) -> list[float]:
    """exp((s - max) / temperature) over their sum: the difference in float32, the rest in float64.

    Powers are rounded from decimal ones, so that they are the same on every machine; sums go from
    left to right. Raises DecisionError for scores that are not finite.
    """
    if not np.isfinite(scores).all():
        raise broken("the model could not evaluate the decision: its scores are not finite")
    below: npt.NDArray[np.float32] = scores - scores.max()
    powers = [_power(x / temperature) for x in below.tolist()]
    total = 0.0
    for power in powers:
        total += power
    return [power / total for power in powers]


def _power(x: float) -> float:
    return float(Decimal(x).exp(_EXACT)) if x > _LEAST else 0.0


def answer(question: Question, shares: Sequence[float]) -> dict[str, Any]:
    """The answer to a question whose options have these probabilities."""
    found: dict[str, Any] = {"type": question.type.word}
    options = question.options
    by_key = {option.key: share for option, share in zip(options, shares, strict=True)}
    if question.type is Type.NOUL:
        return {**found, "noul": by_key[TRUE]}
    if question.type is Type.CHOICE:
        best = shares.index(max(shares))
        return {
            **found,
            "choice": options[best].key,
            "probabilities": by_key,
            "confidence": choice_confidence(shares),
        }
    return {
        **found,
        "score": expected(shares),
        "legend": {option.key: option.description for option in options},
        "probabilities": by_key,
        "confidence": score_confidence(shares),
    }


def expected(shares: Sequence[float]) -> float:
    """The mean level."""
    total = 0.0
    for i, share in enumerate(shares):
        total += i * share
    return total


def choice_confidence(shares: Sequence[float]) -> float:
    """How far the best option is above chance: 0 to 1."""
    if len(shares) < 2:
        return 1.0
    uniform = 1.0 / len(shares)
    return max(0.0, (max(shares) - uniform) / (1.0 - uniform))


def score_confidence(shares: Sequence[float]) -> float:
    """How near the levels are to the likeliest one, beside a uniform distribution: 0 to 1."""
    n, mode = len(shares), shares.index(max(shares))
    distance = uniform = 0.0
    for i, share in enumerate(shares):
        distance += share * abs(i - mode)
        uniform += abs(i - (n - 1) / 2.0) / n
    return max(0.0, 1.0 - distance / uniform)
