"""Likelihoods of tokens, with the same digits on every machine.

ln p = (logit - best logit) - ln(sum of e^(x - best)): the sum is one of integers
(``ferro.models.likelihoods``), its logarithm is decimal arithmetic with 28 digits, rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np

from ferro.models.likelihoods import BITS, weigh
from ferro.models.sampler import Floats

_DECIMAL = Context(prec=28)
_UNIT = _DECIMAL.ln(Decimal(1 << BITS))


@dataclass(frozen=True)
class Likely:
    """The natural logarithm of a token's probability, and the likeliest tokens with theirs, the
    best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def likely(logits: Floats, token: int, count: int) -> Likely:
    """What the model thought of ``token`` and of the ``count`` likeliest, by its ``logits``
    [vocabulary] as they came."""
    x = np.asarray(logits, np.float32).astype(np.float64)
    best = float(np.max(x))
    whole = int(np.add.reduce(weigh(x - best)))
    total = _DECIMAL.subtract(_DECIMAL.ln(Decimal(whole)), _UNIT)

    def logprob(i: int) -> float:
        below = Decimal(float(x[i]) - best) if np.isfinite(x[i]) else Decimal("-Infinity")
        return float(_DECIMAL.subtract(below, total))

    return Likely(logprob(token), tuple((i, logprob(i)) for i in _likeliest(x, count)))


def _likeliest(x: np.ndarray, count: int) -> list[int]:
    """The best ids, of equal ones the lower first."""
    if count <= 0:
        return []
    count = min(count, len(x))
    least = np.partition(x, len(x) - count)[len(x) - count]
    ids = np.flatnonzero(x >= least)
    return [int(i) for i in ids[np.argsort(-x[ids], kind="stable")][:count]]
