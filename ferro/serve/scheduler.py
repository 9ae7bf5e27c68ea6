"""Which rows of prompts are computed next. Knows no model, no thread and no clock."""

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


def share(filling: Sequence[Stream], rows: int) -> list[tuple[Stream, int]]:
    """At most ``rows`` tokens among prompts, which come oldest first: one slice a prompt.

    The one that has least left is first, so that a short prompt need not wait for a long one; half
    of the rows are the oldest one's, so that short ones cannot hold it up for ever.
    """
    if not filling:
        return []
    oldest = filling[0]
    reserved = min(oldest.until_boundary, rows // 2) if len(filling) > 1 else 0
    found = []
    for stream in sorted(filling, key=lambda stream: stream.missing):
        if stream is oldest:
            reserved = 0
        count = min(rows - reserved, stream.until_boundary)
        if count > 0:
            found.append((stream, count))
            rows -= count
    return found
