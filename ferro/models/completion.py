"""One completion: rows of logits in, pieces of text out. Knows no model and no device.

Whoever computes the logits (one stream, or a server for many) feeds one row a token and forwards
``ids[-1]`` until ``finish`` says why there is no more to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from ferro.models.detokenise import Detokeniser
from ferro.models.sampler import Floats, Mask, Sampler, Sampling
from ferro.models.stops import StopStrings
from ferro.models.tokenizer import Tokenizer


class BadRequest(ValueError):
    """A prompt or options with which no completion can be made: the user's to solve."""

    exit_code = 2


class Finish(Enum):
    """Why a completion ended."""

    END = "end"  # the model ended its turn
    STOP = "stop string"
    LENGTH = "length"  # as many tokens as were asked for
    CONTEXT = "context"  # the context is full


@dataclass(frozen=True)
class Options:
    """What is wanted of a completion. Raises BadRequest.

    ``most`` is how many tokens it may have (None: until the context is full), the one that ends a
    turn among them. With ``ignore_ends`` such a token is one like others. ``stream`` numbers the
    completions of one prompt. Control tokens in ``shown`` are part of the text.
    """

    sampling: Sampling = field(default_factory=Sampling)
    most: int | None = None
    stops: tuple[str, ...] = ()
    ignore_ends: bool = False
    stream: int = 0
    shown: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 0:
            raise BadRequest(f"the number of tokens must be at least 0, it is {self.most}")
        if "" in self.stops:
            raise BadRequest("a stop string must not be empty")


class Completion:
    """The completion of one prompt; ``ids`` are its tokens so far."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], context: int, options: Options
    ) -> None:
        """``context`` is how many tokens the model can look back on. Raises BadRequest for a prompt
        that is empty or does not fit, or that has tokens that are none; BadSampling."""
        check_prompt(prompt, context, len(tokenizer))
        self.prompt = tuple(prompt)
        self.ids: list[int] = []
        self.finish: Finish | None = None
        self.sampler = Sampler(options.sampling, len(tokenizer), self.prompt, options.stream)
        self._ends = frozenset() if options.ignore_ends else tokenizer.vocabulary.ends
        self._most = options.most
        # the last token need not be looked back on
        self._room = context - len(self.prompt) + 1
        self._detokeniser = Detokeniser(tokenizer, shown=options.shown)
        self._stops = StopStrings(options.stops)
        if self._most == 0:
            self.finish = Finish.LENGTH

    def feed(self, logits: Floats, allowed: Mask | None = None) -> str:
        """Choose the next token from its ``logits``, float32 [vocabulary]; the text that can be
        shown since then. ``allowed`` [vocabulary] rules tokens out. Raises BadLogits."""
        return self.accept(self.sampler.sample(logits, allowed))

    def accept(self, token: int) -> str:
        """Take a token that ``sampler`` has taken; the text that can be shown since then."""
        assert self.finish is None, "the completion has ended"
        self.ids.append(token)
        if token in self._ends:
            return self._ended(Finish.END)
        shown = self._stops.push(self._detokeniser.push(token))
        if self._stops.found:
            self.finish = Finish.STOP
        elif len(self.ids) == self._most:
            shown += self._ended(Finish.LENGTH)
        elif len(self.ids) == self._room:
            shown += self._ended(Finish.CONTEXT)
        return shown

    def _ended(self, reason: Finish) -> str:
        """Note the reason; what was held back."""
        self.finish = reason
        shown = self._stops.push(self._detokeniser.finish())
        return shown if self._stops.found else shown + self._stops.finish()


def check_prompt(prompt: Sequence[int], context: int, vocabulary: int) -> None:
    """Raises BadRequest for a prompt that is empty, does not fit, or has tokens that are none."""
    if not prompt:
        raise BadRequest("the prompt has no tokens: there is nothing to go on from")
    if len(prompt) > context:
        raise BadRequest(
            f"the prompt has {len(prompt)} tokens, the context holds {context}:"
            " a larger context or a shorter prompt is needed"
        )
    if strange := [token for token in prompt if not 0 <= token < vocabulary]:
        raise BadRequest(f"{strange[0]} is no token id (there are {vocabulary} tokens)")
