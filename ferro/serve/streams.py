"""One completion of a job in one slot: what lies there, and what comes next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ferro.models.completion import Completion
from ferro.models.passes import Piece
from ferro.models.sampler import Floats
from ferro.models.tokenizer import Tokenizer
from ferro.serve.jobs import Ended, Job, Task, Token
from ferro.serve.logprobs import likely


def completion_of(task: Task, tokenizer: Tokenizer, context: int, choice: int = 0) -> Completion:
    """The completion that makes a choice of ``task``. Raises BadRequest, BadSampling."""
    options = replace(task.options, stream=task.options.stream + choice)
    return Completion(tokenizer, task.prompt, context, options)


class Stream:
    """A choice of ``job`` in ``slot``, which holds the first ``held`` tokens of its text."""

    def __init__(
        self, job: Job, choice: int, slot: int, completion: Completion, boundaries: Sequence[int]
    ) -> None:
        """A slice of the prompt ends at each of ``boundaries``."""
        self.job, self.choice, self.slot, self.held = job, choice, slot, 0
        self.completion = completion
        self.guide = job.task.guide() if job.task.guide else None
        self._boundaries = tuple(sorted(boundaries))

    @property
    def missing(self) -> int:
        """Tokens of the prompt that the slot does not hold."""
        return max(0, len(self.job.task.prompt) - self.held)

    @property
    def until_boundary(self) -> int:
        """Tokens up to the next end of a slice."""
        ends = (end - self.held for end in self._boundaries if end > self.held)
        return min(self.missing, *ends, self.missing)

    @property
    def at_boundary(self) -> bool:
        return self.held in self._boundaries

    def piece(self, count: int = 0) -> Piece:
        """What the next pass computes: ``count`` tokens of the prompt, or the newest token."""
        if not count:
            return Piece(self.slot, self.held, (self.completion.ids[-1],))
        tokens = self.job.task.prompt[self.held : self.held + count]
        return Piece(self.slot, self.held, tokens)

    def feed(self, logits: Floats) -> None:
        """Choose the next token and let the job's listener know. Raises BadLogits, and whatever a
        guide does."""
        job, completion, guide = self.job, self.completion, self.guide
        token = guide.forced() if guide else None
        if token is None:
            text = completion.feed(logits, guide.allowed() if guide else None)
            token = completion.ids[-1]
        else:
            completion.sampler.accept(token)
            text = completion.accept(token)
        if guide:
            guide.took(token)
        if job.clock.first is None:
            job.clock.first = time.perf_counter()
        job.clock.tokens += 1
        wanted = job.task.likely
        known = None if wanted is None else likely(logits, token, wanted)
        job.tell(Token(self.choice, token, text, known))
        self.tell_end()

    def tell_end(self) -> bool:
        """Say that the completion has ended, if it has."""
        if self.completion.finish is None:
            return False
        self.job.tell(Ended(self.choice, self.completion.finish))
        return True
