"""Which rows the next pass computes. Knows no model, no thread and no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """Shares out the rows of passes among prompts, which come oldest first.

    Every second pass begins with the one that has least left, so that a short prompt need not wait
    for a long one; the others with the oldest, so that short ones cannot hold it up for ever.
    """

    def __init__(self) -> None:
        self._oldest_first = False

    def share(self, filling: Sequence[Stream], rows: int) -> list[tuple[Stream, int]]:
        """At most ``rows`` tokens, one slice a prompt."""
        ordered: Iterable[Stream] = filling
        if not self._oldest_first:
            ordered = sorted(filling, key=lambda stream: stream.missing)
        if filling and rows:
            self._oldest_first = not self._oldest_first
        found = []
        for stream in ordered:
            if rows <= 0:
                break
            count = min(rows, stream.until_boundary)
            found.append((stream, count))
            rows -= count
        return found
