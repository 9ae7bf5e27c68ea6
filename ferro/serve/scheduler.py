"""Whose prompt is computed next. Knows no model, no thread and no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Filling(Protocol):
    """A stream whose prompt is not all in its slot."""

    @property
    def missing(self) -> int:
        """Tokens of the prompt that are not there yet."""

    @property
    def until_boundary(self) -> int:
        """Tokens to the next place at which a slice has to end, at most ``missing``."""


Stream = TypeVar("Stream", bound=Filling)


class Turns:
    """One slice at a time. The prompt that has least left is first, so that a short one need not
    wait for a long one; once others had as many tokens as a slice has, the oldest one has its
    turn, so that short ones cannot hold it up for ever."""

    def __init__(self) -> None:
        self._oldest: Filling | None = None
        self._others = 0

    def next(self, filling: Sequence[Stream], rows: int) -> tuple[Stream, int]:
        """Of some prompts, which come oldest first, whose turn it is, and how many tokens it has:
        at most ``rows``."""
        oldest = filling[0]
        if oldest is not self._oldest:
            self._oldest, self._others = oldest, 0
        shortest = min(filling, key=lambda stream: stream.missing)
        chosen = oldest if self._others >= rows else shortest
        count = min(rows, chosen.until_boundary)
        self._others = 0 if chosen is oldest else self._others + count
        return chosen, count
