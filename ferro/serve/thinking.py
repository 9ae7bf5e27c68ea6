"""Reasoning: told from the answer in a text that comes in pieces, and held to a budget."""

from __future__ import annotations

from ferro.models.sampler import Mask
from ferro.models.tokenizer import Tokenizer

OPEN, CLOSE = "<think>", "</think>"


class Thinking:
    """Splits a text into reasoning and answer.

    Reasoning stands at the beginning, between ``<think>`` and ``</think>``; space around either
    part is dropped, as far as it stands beside those marks.
    """

    def __init__(self, opened: bool = False) -> None:
        """``opened``: the prompt ends with the opening mark."""
        self._held = ""
        self._started = self._inside = opened
        self._trim = opened

    @property
    def inside(self) -> bool:
        """Whether the text is still reasoning."""
        return self._inside

    def push(self, text: str) -> tuple[str, str]:
        """What can be told of reasoning and of the answer after ``text`` has come."""
        self._held += text
        if not self._started and not self._start():
            return "", ""
        reasoning = ""
        if self._inside:
            reasoning = self._reasoning()
            if self._inside:
                return reasoning, ""
        return reasoning, self._answer()

    def finish(self) -> tuple[str, str]:
        """What was held back, now that no more comes."""
        held, self._held = self._held, ""
        if self._inside:
            return held.rstrip(), ""
        return "", "" if self._trim and not held.strip() else held

    def _start(self) -> bool:
        """Find out how the text begins; False if that is not known yet."""
        bare = self._held.lstrip()
        if bare.startswith(OPEN):
            self._held = bare[len(OPEN) :]
            self._inside = self._trim = True
        elif OPEN.startswith(bare):
            return False
        self._started = True
        return True

    def _reasoning(self) -> str:
        if self._trim:
            self._held = self._held.lstrip()
            self._trim = not self._held
        at = self._held.find(CLOSE)
        if at >= 0:
            found, self._held = self._held[:at].rstrip(), self._held[at + len(CLOSE) :]
            self._inside, self._trim = False, True
            return found
        kept = overlap(self._held, CLOSE)
        bare = self._held[: len(self._held) - kept].rstrip()
        found, self._held = bare, self._held[len(bare) :]
        return found

    def _answer(self) -> str:
        if self._trim:
            self._held = self._held.lstrip()
            self._trim = not self._held
        found, self._held = self._held, ""
        return found


class Budget:
    """A guide that ends reasoning after so many tokens of it."""

    def __init__(self, tokenizer: Tokenizer, most: int, opened: bool) -> None:
        self._tokenizer, self._left = tokenizer, most
        self._close = tokenizer.encode(CLOSE, add_special=False)
        self._thinking = Thinking(opened)
        self._queued: list[int] = []
        self._done = False

    def forced(self) -> int | None:
        if self._queued:
            return self._queued[0]
        if self._thinking.inside and self._left <= 0 and not self._done:
            self._done = True
            self._queued = list(self._close)
            return self._queued[0]
        return None

    def allowed(self) -> Mask | None:
        return None

    def took(self, token: int) -> None:
        if self._queued:
            self._queued.pop(0)
            return
        if self._done:
            return
        piece = self._tokenizer.piece(token, special=True).decode("utf-8", "replace")
        was = self._thinking.inside
        self._thinking.push(piece)
        self._left -= was and self._thinking.inside


def overlap(text: str, mark: str) -> int:
    """How many characters at the end of ``text`` are the beginning of ``mark``."""
    most = min(len(text), len(mark) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(mark[:n])), 0)
