"""From logits to a token: bias, penalties, top-k, top-p, min-p, temperature, one draw.

The order is llama.cpp's. Adjustments are single IEEE operations on float32, likelihoods are
integers, and the draw depends on (seed, stream, position) only, so that the same logits give the
same token on every machine. docs/tokenizers.md has the formulas.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ferro.dsl import exact
from ferro.models.likelihoods import LEAST, Weights, part, weigh
from ferro.models.random_numbers import draw

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MOST_TOKENS = 1 << 22  # so that 64 bits hold a sum of weights


class BadSampling(ValueError):
    """Options that mean nothing."""

    exit_code = 2


class BadLogits(ArithmeticError):
    """Logits from which no token can be chosen."""

    exit_code = 1


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Raises BadSampling.

    ``temperature`` 0 takes the best token; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0, penalties 1 or 0
    do nothing. Penalties look at the last ``repeat_last_n`` tokens (-1: all), with
    ``penalise_prompt`` those of the prompt among them. ``seed`` None draws one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    penalise_prompt: bool = True
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"):
            _check(math.isfinite(getattr(self, name)), f"{name} must be a finite number")
        _check(0 <= self.temperature <= 1000, "temperature must be from 0 to 1000")
        _check(0 <= self.top_p <= 1, "top_p must be from 0 to 1")
        _check(0 <= self.min_p <= 1, "min_p must be from 0 to 1")
        _check(0 < self.repeat_penalty < math.inf, "repeat_penalty must be finite and above 0")
        _check(self.top_k >= 0, "top_k must be at least 0")
        _check(self.repeat_last_n >= -1, "repeat_last_n must be at least -1")
        biases = self.logit_bias.values()
        _check(all(bias < math.inf for bias in biases), "logit_bias must be numbers below infinity")

    @property
    def penalises(self) -> bool:
        """Whether tokens that were there before are penalised."""
        values = (self.repeat_penalty, self.presence_penalty, self.frequency_penalty)
        return values != (1, 0, 0) and self.repeat_last_n != 0


class Sampler:
    """Chooses the tokens of one completion, one after the other."""

    def __init__(
        self, options: Sampling, vocabulary: int, prompt: Iterable[int] = (), stream: int = 0
    ) -> None:
        """``vocabulary`` is how many tokens there are; completions of one prompt have different
        ``stream`` numbers. Numbers in ``prompt`` that are no tokens (media) are not penalised.
        Raises BadSampling for a biased token that is none."""
        _check(0 < vocabulary <= MOST_TOKENS, f"a vocabulary of {vocabulary} tokens")
        for token in options.logit_bias:
            _check(0 <= token < vocabulary, f"logit_bias: there is no token {token}")
        self.options = options
        self.seed = secrets.randbits(63) if options.seed is None else options.seed
        self.position = 0
        self._vocabulary, self._stream = vocabulary, stream
        before = prompt if options.penalise_prompt and options.penalises else ()
        self._past = [token for token in before if 0 <= token < vocabulary]
        biases = options.logit_bias
        self._biased = np.fromiter(biases.keys(), np.int64, len(biases))
        self._bias = np.fromiter(biases.values(), np.float32, len(biases))

    def sample(self, logits: Floats, allowed: Mask | None = None) -> int:
        """The next token for float32 ``logits`` [vocabulary], which are left as they are;
        ``allowed`` [vocabulary] rules tokens out. Raises BadLogits."""
        token = self.choose(logits, allowed)
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        """Take a token as the next one, however it was chosen."""
        self.position += 1
        if self.options.penalises:
            self._past.append(token)

    def choose(self, logits: Floats, allowed: Mask | None = None) -> int:
        """What ``sample`` would take, without taking it."""
        x = self._adjusted(logits, allowed)
        if self.options.temperature == 0:
            return int(exact.reduce_argmax(x, 0))
        ids, weights = self._candidates(x)
        ends = np.add.accumulate(weights)
        point = draw(self.seed, self._stream, self.position) * int(ends[-1]) >> 64
        return int(ids[np.searchsorted(ends, point, side="right")])

    def candidates(self, logits: Floats, allowed: Mask | None = None) -> tuple[Ids, Weights]:
        """The tokens that may be drawn, the likeliest first, and their integer weights."""
        return self._candidates(self._adjusted(logits, allowed))

    # ------------------------------------------------------------------------------- logits

    def _adjusted(self, logits: Floats, allowed: Mask | None) -> Floats:
        """Logits with bias and penalties. Raises BadLogits."""
        x = np.asarray(logits, np.float32)
        if x.shape != (self._vocabulary,):
            raise BadLogits(f"logits of shape {list(x.shape)} for {self._vocabulary} tokens")
        if len(self._biased) or self._past or allowed is not None:
            x = x.copy()
            x[self._biased] += self._bias
            self._penalise(x)
            if allowed is not None:
                x[~allowed] = -np.inf
        top = np.max(x)
        if not top < np.inf:
            raise BadLogits("the logits are not finite")
        if top == -np.inf:
            raise BadLogits("every token is ruled out")
        return x

    def _penalise(self, x: Floats) -> None:
        options = self.options
        last = options.repeat_last_n
        window = self._past if last < 0 else self._past[-last:]
        ids, counts = np.unique(np.array(window, np.int64), return_counts=True)
        repeat, presence, frequency = (
            np.float32(value)
            for value in (
                options.repeat_penalty,
                options.presence_penalty,
                options.frequency_penalty,
            )
        )
        found = x[ids]
        found = np.where(found > 0, found / repeat, found * repeat)
        x[ids] = found - (counts.astype(np.float32) * frequency + presence)

    # --------------------------------------------------------------------------- candidates

    def _candidates(self, x: Floats) -> tuple[Ids, Weights]:
        options = self.options
        temperature = options.temperature or 1.0
        ids = _best(x, options.top_k, max(1.0, temperature))
        below = x[ids].astype(np.float64) - float(x[ids[0]])
        weights = weigh(below)
        if options.top_p < 1:
            ends = np.add.accumulate(weights)
            kept = int(np.searchsorted(ends, part(options.top_p, int(ends[-1])))) + 1
            ids, below, weights = ids[:kept], below[:kept], weights[:kept]
        likely = weights >= part(options.min_p, int(weights[0]))
        if temperature != 1:
            weights = weigh(below, temperature)
        likely &= weights > 0
        return ids[likely], weights[likely]


def _best(x: Floats, top_k: int, temperature: float) -> Ids:
    """The candidates, best first, of equal ones the lower id first."""
    if 0 < top_k < len(x):
        least = np.partition(x, len(x) - top_k)[len(x) - top_k]
        above, equal = np.flatnonzero(x > least), np.flatnonzero(x == least)
        ids = np.sort(np.concatenate([above, equal[: top_k - len(above)]]))
    else:
        # what is further below weighs nothing
        ids = np.flatnonzero(x >= np.max(x) + np.float32(LEAST * temperature))
    return ids[np.argsort(-x[ids], kind="stable")]


def _check(good: bool, problem: str) -> None:
    if not good:
        raise BadSampling(problem)
