"""From a prompt to text on a language model, one stream: fill the context in slices, then one pass
a token.

A row's logits do not depend on how a prompt is cut, nor on whether its beginning lay in the slot
already, so neither changes a token.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ferro.models.completion import Completion, Options
from ferro.models.passes import Piece
from ferro.models.sampler import Floats
from ferro.report import Progress

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

SLICE = 256  # tokens of a prompt in one pass: what it needs is made once, Ctrl-C need not wait long


@dataclass
class Timings:
    """Tokens, and seconds that they took. The first token comes out of the prompt's last pass;
    decoding is what follows it."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float | None:
        """Tokens of the prompt that were computed a second."""
        return _rate(self.prompt_tokens - self.cached_tokens, self.first_token_seconds)

    @property
    def decode_rate(self) -> float | None:
        """Tokens a second, without the first one."""
        return _rate(self.tokens - 1, self.decode_seconds)

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "prefill_tokens_per_second": self.prefill_rate,
            "decode_tokens_per_second": self.decode_rate,
        }


class Stream:
    """One sequence in one slot of a model. Remembers what lies there: a prompt that goes on from it
    is not computed again."""

    def __init__(self, model: LanguageModel, slot: int = 0, size: int = SLICE) -> None:
        """``size`` is how many tokens a pass takes at most."""
        self.model = model
        self._slot, self._size = slot, size
        self._held: list[int] = []
        # what convolutions remember is of the end alone, and cannot be taken back
        self._rewinds = all(layer.attends for layer in model.hyperparameters.layers)

    def forget(self) -> None:
        """Begin anew."""
        self._held = []

    def reusable(self, prompt: Sequence[int]) -> int:
        """How many tokens at the beginning of ``prompt`` need not be computed again. The last one
        always is: its logits are wanted."""
        same = 0
        for ours, theirs in zip(self._held, prompt[:-1], strict=False):
            if ours != theirs:
                break
            same += 1
        return same if self._rewinds or same == len(self._held) else 0

    def fill(self, prompt: Sequence[int]) -> Floats:
        """Make the slot hold ``prompt``, which is not empty; the logits after it, float32
        [vocabulary]. Shows a bar on a terminal if it takes longer than a second."""
        starts = range(self.reusable(prompt), len(prompt), self._size)
        with Progress(len(starts), "prompt", delay=1.0) as progress:
            for start in starts[:-1]:
                self.extend(prompt[start : start + self._size], start, wanted=0)
                # or all slices would be under way at once, and nothing could stop them
                self.model.device.finish()
                progress.step()
            return self.extend(prompt[starts[-1] :], starts[-1])[-1]

    def rows(self, prompt: Sequence[int]) -> Iterator[Floats]:
        """The logits after every token of ``prompt``, a slice at a time: float32 [rows,
        vocabulary]."""
        for start in range(0, len(prompt), self._size):
            tokens = prompt[start : start + self._size]
            yield self.extend(tokens, start, wanted=len(tokens))

    def extend(self, tokens: Sequence[int], start: int | None = None, wanted: int = 1) -> Floats:
        """Put ``tokens`` into the slot from position ``start`` on (default: after what it holds);
        the logits after the last ``wanted`` of them, float32 [wanted, vocabulary]."""
        at = len(self._held) if start is None else start
        before = self._held[:at]
        # until the pass is done nobody knows what the slot holds
        self._held = []
        logits = self.model.forward([Piece(self._slot, at, tuple(tokens), wanted)])
        self._held = [*before, *tokens]
        return logits

    def complete(self, prompt: Sequence[int], options: Options | None = None) -> Generation:
        """A completion of ``prompt``, to be iterated over for its text. Raises BadRequest,
        BadSampling."""
        return Generation(self, prompt, options or Options())


class Generation:
    """Pieces of text while they come, and what is known at the end: ``completion``, ``timings``."""

    def __init__(self, stream: Stream, prompt: Sequence[int], options: Options) -> None:
        model = stream.model
        self.completion = Completion(model.tokenizer, prompt, model.context, options)
        self.timings = Timings(len(prompt), stream.reusable(prompt))
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        """The text, never a part of a character or of a stop string; "" for a token that shows
        nothing yet. Raises BadLogits, DeviceLost."""
        completion, timings = self.completion, self.timings
        if completion.finish is not None:
            return
        started = time.perf_counter()
        text = completion.feed(self._stream.fill(completion.prompt))
        first = time.perf_counter()
        timings.first_token_seconds, timings.tokens = first - started, 1
        yield text
        while completion.finish is None:
            # the reader's time does not count
            started = time.perf_counter()
            text = completion.feed(self._stream.extend(completion.ids[-1:])[-1])
            timings.decode_seconds += time.perf_counter() - started
            timings.tokens += 1
            yield text


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if count > 0 and seconds > 0 else None
