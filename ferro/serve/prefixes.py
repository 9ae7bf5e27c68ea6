"""The prefix cache: snapshots of slots at places from which later requests are likely to go on.

Kept are the ends of system messages, the ends of what two prompts shared, and the ends of
conversations that have gone on ("tails"). The least recently used ones go first when the budget is
full; tails have a quarter of it, replace the tail that they go on from, and push out tails only.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ferro.runtime.errors import DeviceError, OutOfMemory
from ferro.serve.jobs import Task

log = logging.getLogger("ferro.serve")

Tokens = tuple[int, ...]

SHORTEST = 16  # tokens: what is shorter is filled sooner than it is found
RECENT = 32  # prompts that new ones are compared with
TAILS = 4  # tails have one part in so many


class Store(Protocol):
    """What snapshots are made of and go back to: a language model."""

    def save(self, slot: int) -> Any: ...

    def restore(self, snapshot: Any, slot: int, tokens: int | None = None) -> None: ...

    def snapshot_bytes(self, tokens: int) -> int: ...

    @property
    def rewinds(self) -> bool: ...


@dataclass(frozen=True)
class Entry:
    """A snapshot of a slot that held ``tokens``."""

    tokens: Tokens
    snapshot: Any
    nbytes: int
    tail: bool


@dataclass
class Counts:
    """What became of look-ups and entries."""

    queries: int = 0
    hits: int = 0
    evicted: int = 0
    skipped: int = 0


class Prefixes:
    """Keeps at most ``budget`` bytes of snapshots; of a budget of 0, nothing."""

    def __init__(self, store: Store, budget: int, tails: bool = True) -> None:
        self.store, self._budget, self._tails = store, budget, tails
        self._entries: OrderedDict[Tokens, Entry] = OrderedDict()
        self._recent: deque[Tokens] = deque(maxlen=RECENT)
        self.counts = Counts()

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def boundaries(self, task: Task) -> list[int]:
        """The lengths of beginnings of a prompt that are to be kept. Remembers the prompt."""
        if not self._budget or not task.cached:
            return []
        prompt = task.prompt
        shared = max((_shared(prompt, recent) for recent in self._recent), default=0)
        # of a prompt that comes again all but the last token can be used
        found = {*task.boundaries, min(shared, len(prompt) - 1)}
        self._recent.append(prompt)
        if self._tails and task.tail:
            found.add(len(prompt))
        return sorted(n for n in found if SHORTEST <= n <= len(prompt))

    def restore(self, task: Task, slot: int) -> int:
        """Make ``slot`` hold the longest known beginning of a prompt, without its last token, whose
        logits are wanted; the number of its tokens, 0 if none is known."""
        if not self._budget or not task.cached:
            return 0
        self.counts.queries += 1
        best, length = None, 0
        for entry in self._entries.values():
            usable = self._usable(entry, task.prompt)
            if usable > length:
                best, length = entry, usable
        if best is None or length < SHORTEST:
            return 0
        self.counts.hits += 1
        self._entries.move_to_end(best.tokens)
        self.store.restore(best.snapshot, slot, length)
        return length

    def keep(self, task: Task, tokens: int, slot: int) -> None:
        """Keep what ``slot`` holds: the first ``tokens`` of a prompt."""
        prefix = task.prompt[:tokens]
        if prefix in self._entries:
            self._entries.move_to_end(prefix)
            return
        tail = task.tail and tokens == len(task.prompt) and tokens not in task.boundaries
        size = self.store.snapshot_bytes(tokens)
        if tail:
            self._replace_tails(prefix)
        if not self._make_room(size, tail):
            self.counts.skipped += 1
            return
        try:
            snapshot = self.store.save(slot)
        except OutOfMemory:
            log.warning("no memory for a snapshot of %d tokens", tokens)
            self.counts.skipped += 1
            return
        self._entries[prefix] = Entry(prefix, snapshot, snapshot.nbytes, tail)

    def clear(self) -> None:
        """Give all memory back."""
        for tokens in list(self._entries):
            self._drop(tokens)

    def _usable(self, entry: Entry, prompt: Tokens) -> int:
        """How many tokens of an entry a prompt can go on from."""
        most = len(prompt) - 1
        if len(entry.tokens) <= most and prompt[: len(entry.tokens)] == entry.tokens:
            return len(entry.tokens)
        return min(_shared(entry.tokens, prompt), most) if self.store.rewinds else 0

    def _replace_tails(self, prefix: Tokens) -> None:
        for entry in list(self._kept(tail=True)):
            if prefix[: len(entry.tokens)] == entry.tokens:
                self._drop(entry.tokens)

    def _make_room(self, size: int, tail: bool) -> bool:
        """Push out the oldest entries until ``size`` bytes fit; False if they cannot."""
        limit = self._budget // TAILS if tail else self._budget
        if size > limit:
            return False
        if tail and self._bytes(tail=False) + size > self._budget:
            return False
        while (self._bytes(tail=True) if tail else self.nbytes) + size > limit:
            oldest = next(self._kept(tail=True), None) or next(self._kept(tail=False))
            self._drop(oldest.tokens)
            self.counts.evicted += 1
        while self.nbytes + size > self._budget:
            self._drop(next(self._kept(tail=True)).tokens)
            self.counts.evicted += 1
        return True

    def _kept(self, tail: bool) -> Iterator[Entry]:
        """Entries of one class, the least recently used first."""
        return (entry for entry in self._entries.values() if entry.tail == tail)

    def _bytes(self, tail: bool) -> int:
        return sum(entry.nbytes for entry in self._kept(tail))

    def _drop(self, tokens: Tokens) -> None:
        with suppress(DeviceError):  # of a lost device
            self._entries.pop(tokens).snapshot.release()


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
