"""How far a device's in-order queue has come, and what may be freed only then.

OpenCL keeps a buffer until the commands that use it are complete, but not host memory that the
buffer was made of, which is Ferro's to keep.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class _Parked(NamedTuple):
    number: int
    size: int
    free: Callable[[], object]


class Progress:
    """Counts commands that were started and those known to be complete."""

    def __init__(self) -> None:
        self.started = 0
        self.completed = 0
        self.parked = 0
        self._parked: deque[_Parked] = deque()
        # a finalizer may run at any place of the thread that holds it
        self._lock = threading.RLock()

    def start(self) -> int:
        """Number one more command, before it is enqueued."""
        self.started += 1
        return self.started

    def complete(self, number: int) -> None:
        """Command ``number`` and all before it are complete: free what waited for them."""
        if number > self.completed:
            self.completed = number
        if self._parked:
            for entry in self._unpark():
                entry.free()

    def when_complete(self, size: int, free: Callable[[], object]) -> None:
        """Call ``free`` once everything started so far is complete, at once if it is.

        ``parked`` is the sum of the ``size`` of what waits, in bytes.
        """
        with self._lock:
            if self.completed < self.started:
                self.parked += size
                self._parked.append(_Parked(self.started, size, free))
                return
        free()

    def _unpark(self) -> list[_Parked]:
        """Take out what may be freed. It is freed outside the lock: that takes other locks."""
        found = []
        with self._lock:
            while self._parked and self._parked[0].number <= self.completed:
                found.append(self._parked.popleft())
                self.parked -= found[-1].size
        return found
