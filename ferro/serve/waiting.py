"""Choices of jobs that have no slot yet, and whose turn it is."""

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
    """Jobs take turns: each gives one choice, the one that came first before the others, and goes
    to the end while it has more, so that a request for many texts does not hold up the next one.
    Jobs come in by any thread; the engine takes choices out."""

    def __init__(self, changed: threading.Condition) -> None:
        """``changed`` is the lock, and told of what comes in."""
        self.changed = changed
        self._turns: deque[deque[Waiting]] = deque()  # the choices of each job

    def __len__(self) -> int:
        """How many choices wait."""
        return sum(map(len, self._turns))

    @property
    def requests(self) -> int:
        """How many jobs have a choice that waits."""
        return len(self._turns)

    def put(self, job: Job) -> None:
        """The first choice of a job, which its others follow once they can."""
        with self.changed:
            self._turns.append(deque([Waiting(job)]))

    def put_rest(self, job: Job, fork: Fork | None) -> None:
        """The further choices of a job."""
        rest = deque(Waiting(job, choice, fork) for choice in range(1, job.task.choices))
        if rest:
            with self.changed:
                self._turns.append(rest)

    def take(self) -> Waiting | None:
        """The choice whose turn it is, if there is any."""
        with self.changed:
            if not self._turns:
                return None
            choices = self._turns.popleft()
            taken = choices.popleft()
            if choices:
                self._turns.append(choices)
            return taken

    def jobs(self) -> list[Job]:
        """Those of which a choice waits."""
        with self.changed:
            return [choices[0].job for choices in self._turns]

    def drop(self, job: Job) -> None:
        """Take out all choices of a job."""
        with self.changed:
            dropped = [each for choices in self._turns for each in choices if each.job is job]
            self._turns = deque(choices for choices in self._turns if choices[0].job is not job)
        for each in dropped:
            each.give_up()
