"""How fast a language model runs: samples of prefill and decode, with a check of its text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from ferro.models.completion import Options
from ferro.models.generation import Stream
from ferro.models.sampler import Sampler, Sampling
from ferro.neighbours import Watch

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

TEXT, TEXT_TOKENS = "The capital of France is", 16
GREEDY = Sampling(temperature=0)


@dataclass(frozen=True)
class Sample:
    """Tokens in ``seconds``, and the share of the processors that other programs took meanwhile
    (None if it is not known)."""

    seconds: float
    rate: float
    others: float | None


@dataclass
class Measurement:
    """Samples of one kind: "prefill" of ``tokens`` from an empty context, or "decode" of as many
    one by one after ``depth`` others."""

    kind: str
    tokens: int
    depth: int = 0
    samples: list[Sample] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Tokens a second."""
        return median(sample.rate for sample in self.samples)

    @property
    def spread(self) -> float:
        """The largest difference between samples, as a share of the median."""
        rates = [sample.rate for sample in self.samples]
        return (max(rates) - min(rates)) / self.median

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "median": self.median, "spread": self.spread}


@dataclass(frozen=True)
class Check:
    """The greedy continuation of a known text; ``same`` if every repetition gave it."""

    prompt: str
    ids: list[int]
    text: str
    same: bool


class Pace:
    """Measures one model. Every kind runs once before it counts: what it needs is then there."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._stream = Stream(model)
        self._texts: list[list[int]] = []

    def run(
        self,
        prefills: Sequence[int],
        decodes: Sequence[tuple[int, int]],
        repetitions: int,
        tell: Callable[[str], object] = lambda _: None,
    ) -> list[Measurement]:
        """Measure prefill of each size, and decode of each (tokens, depth). After each round over
        all of them the greedy text is taken. ``tell`` hears of every sample."""
        found = [Measurement("prefill", size) for size in prefills]
        found += [Measurement("decode", tokens, depth) for tokens, depth in decodes]
        for number in range(repetitions + 1):
            for measurement in found:
                sample = self._sample(measurement)
                tell(measurement.kind)
                if number:
                    measurement.samples.append(sample)
            self._texts.append(self._greedy())
        return found

    def check(self) -> Check:
        """What became of the text."""
        ids = self._texts[0]
        same = all(each == ids for each in self._texts)
        return Check(TEXT, ids, self._model.tokenizer.decode(ids), same)

    def _sample(self, wanted: Measurement) -> Sample:
        prompt = self._prompt(wanted.depth if wanted.kind == "decode" else wanted.tokens)
        self._stream.forget()
        if wanted.kind == "prefill":
            return timed(wanted.tokens, lambda: self._stream.fill(prompt))
        logits = self._stream.fill(prompt)
        sampler = Sampler(GREEDY, len(self._model.tokenizer))

        def decode() -> None:
            row = logits
            for _ in range(wanted.tokens):
                row = self._stream.extend([sampler.sample(row)])[-1]

        return timed(wanted.tokens, decode)

    def _prompt(self, size: int) -> list[int]:
        """Tokens without a meaning; at least one, so that something is known before the next."""
        count = len(self._model.tokenizer)
        return [(7919 * i + 13) % count for i in range(max(size, 1))]

    def _greedy(self) -> list[int]:
        prompt = self._model.tokenizer.encode(TEXT)
        most = min(TEXT_TOKENS, self._model.context - len(prompt))
        self._stream.forget()
        generation = self._stream.complete(prompt, Options(GREEDY, most, ignore_ends=True))
        for _ in generation:
            pass
        return generation.completion.ids


def timed(tokens: int, work: Callable[[], object]) -> Sample:
    """One sample of ``work`` on ``tokens``."""
    watch, start = Watch(), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return Sample(seconds, tokens / seconds, watch.others())
