"""Merging: neighbouring symbols become one, the best pair first, until no pair is known.

The only difference between the tokenisers that merge is what a pair is worth.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable

# What a pair of symbols is worth: the least is merged first, None is never merged.
Rank = Callable[[str, str], float | None]

SPACE = "▁"  # stands for a blank in vocabularies that are not byte-level
CACHED = 1 << 16  # pieces whose ids are remembered
LONGEST_CACHED = 64


def merge(symbols: list[str], rank: Rank) -> list[str]:
    """The symbols that are left of ``symbols``. Of pairs of one rank the leftmost goes first."""
    count = len(symbols)
    after = [*range(1, count), -1]
    before = [*range(-1, count - 1)]
    # (rank, left, right, length of both): a pair of another length has changed since
    pairs: list[tuple[float, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        worth = rank(symbols[left], symbols[right])
        if worth is not None:
            length = len(symbols[left]) + len(symbols[right])
            heapq.heappush(pairs, (worth, left, right, length))

    for left in range(count - 1):
        offer(left, left + 1)
    while pairs:
        _, left, right, length = heapq.heappop(pairs)
        if not (symbols[left] and symbols[right]):
            continue
        if len(symbols[left]) + len(symbols[right]) != length:
            continue
        symbols[left] += symbols[right]
        symbols[right] = ""
        beyond = after[left] = after[right]
        if beyond >= 0:
            before[beyond] = left
            offer(left, beyond)
        if before[left] >= 0:
            offer(before[left], left)
    return [symbol for symbol in symbols if symbol]


class Words:
    """Cuts texts where no merge can reach across, so that words can be remembered.

    That is in front of a blank (``▁``) that follows another character, unless the merges know that
    pair of characters. Cutting there changes no result.
    """

    def __init__(self, merged: str) -> None:
        """``merged``: every text that merging can make, with NUL between them."""
        reached = set(re.findall(f"([^{SPACE}\0]){SPACE}", merged))
        barred = "".join(map(re.escape, sorted(reached | {SPACE, "\0"})))
        self._border = re.compile(f"(?<=[^{barred}])(?={SPACE})")

    def cut(self, text: str) -> list[str]:
        """``text`` in words; none is empty."""
        return [word for word in self._border.split(text) if word]
