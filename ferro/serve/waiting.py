"""Choices of jobs that have no slot yet, in their order."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ferro.models.sampler import Floats
from ferro.runtime.errors import DeviceError
from ferro.serve.jobs import Job


class Fork:
    """A prompt that was filled, for further choices of its job: the slot's copy and the logits
    [vocabulary] after it."""

    def __init__(self, snapshot: Any, row: Floats, choices: int) -> None:
        self.snapshot, self.row, self._left = snapshot, row, choices

    def used(self) -> None:
        """One of the choices needs it no more."""
        self._left -= 1
        if not self._left:
            with suppress(DeviceError):  # of a lost device
                self.snapshot.release()


@dataclass(frozen=True)
class Waiting:
    """A choice of a job; ``fork`` is what it goes on from, if there is something."""

    job: Job
    choice: int = 0
    fork: Fork | None = None

    def give_up(self) -> None:
        """It will not be begun."""
        if self.fork is not None:
            self.fork.used()


class Queue:
    """First come, first served. Jobs come in by any thread; the engine takes choices out."""

    def __init__(self, changed: threading.Condition) -> None:
        """``changed`` is the lock, and told of what comes in."""
        self.changed = changed
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, job: Job) -> None:
        """At the end: the first choice of a job, which its others follow once they can."""
        with self.changed:
            self._waiting.append(Waiting(job))

    def put_rest(self, job: Job, fork: Fork | None) -> None:
        """In front: the further choices of a job."""
        rest = [Waiting(job, choice, fork) for choice in range(1, job.task.choices)]
        with self.changed:
            self._waiting.extendleft(reversed(rest))

    def take(self) -> Waiting | None:
        """The first one, if there is any."""
        with self.changed:
            return self._waiting.popleft() if self._waiting else None

    def jobs(self) -> list[Job]:
        """Those of which a choice waits."""
        with self.changed:
            return [each.job for each in self._waiting]

    def drop(self, job: Job) -> None:
        """Take out all choices of a job."""
        with self.changed:
            dropped = [each for each in self._waiting if each.job is job]
            if dropped:
                self._waiting = deque(each for each in self._waiting if each.job is not job)
        for each in dropped:
            each.give_up()
