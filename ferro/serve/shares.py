"""Whose turn it is on the device: shares of its time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

Party = TypeVar("Party", bound=Hashable)


class Shares:
    """Equal shares of time among those that have work: the one that has had least is next.

    What has come later has had as much as the least of the others: it has its turn at once, and no
    arrears from the time in which it had nothing to do.
    """

    def __init__(self) -> None:
        self._had: dict[Hashable, float] = {}

    def next(self, ready: Sequence[Party]) -> Party:
        """One of some that have work, all of those that have."""
        staying = [self._had[each] for each in ready if each in self._had]
        least = min(staying, default=0.0)
        new = [each for each in ready if each not in self._had]
        self._had = {each: self._had.get(each, least) for each in ready}
        return min([*new, *ready], key=self._had.__getitem__)

    def took(self, party: Hashable, seconds: float) -> None:
        """Hear how long a turn was."""
        self._had[party] = self._had.get(party, 0.0) + seconds
