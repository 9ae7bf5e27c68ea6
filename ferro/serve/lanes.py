"""What the lanes of the engine have in common: how work comes in, and how it is refused.

A lane is one model's work on the device. Jobs come into it from any thread; passes are the engine's
thread's alone.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from ferro.serve.jobs import Failed, Job
from ferro.serve.totals import Counts

# why jobs fail
TIMEOUT, CLOSED, BROKEN, NUMBERS = "timeout", "closed", "broken", "numbers"
LONGEST_WAIT = 60  # seconds that a client is asked to wait at most


class Busy(Exception):
    """The queue is full; ``retry_after`` is when it may have room, in seconds."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting} requests wait already: try again later")
        self.retry_after = retry_after


class Closing(Exception):
    """The server is about to end and takes no more work."""


class Gate:
    """Between requests and the engine's thread: ``changed`` is the lock of all queues, and tells of
    new work; once ``closing``, no more comes in."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closing = False


class Lane(ABC):
    """The work of ``model``, which is of a ``kind`` ("language", "embedding", "decision")."""

    kind: str
    totals: Counts
    keeps = False  # a pass leaves something in slots: one to warm up with needs them empty

    def __init__(self, gate: Gate, model: Any, most_waiting: int) -> None:
        """``most_waiting`` is how many jobs may wait."""
        self.gate, self.model = gate, model
        self._most_waiting = most_waiting

    # ------------------------------------------------------------------- from other threads

    def submit(self, job: Job) -> None:
        """Take a job. Raises Busy, Closing, and what ``check`` does; then no event comes."""
        self.check(job)
        with self.gate.changed:
            if self.gate.closing:
                raise Closing("the server is shutting down")
            if self.full:
                self.totals.refused += 1
                seconds = max(1, min(LONGEST_WAIT, round(self.seconds_ahead)))
                raise Busy(self.waiting, seconds)
            self.totals.requests += 1
            self.put(job)
            self.gate.changed.notify()

    @abstractmethod
    def check(self, job: Job) -> None:
        """Raises what a request is refused with that makes no sense."""

    @abstractmethod
    def put(self, job: Job) -> None:
        """Let a job wait; the gate is locked."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """What waits for its turn."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether as much waits as may."""

    @property
    @abstractmethod
    def seconds_ahead(self) -> float:
        """How long what waits will take, about."""

    # -------------------------------------------------------------------- the engine's thread

    @property
    @abstractmethod
    def ready(self) -> Sequence[str]:
        """The kinds of passes for which there is work; each has its share of the device's time."""

    @abstractmethod
    def step(self, work: str) -> None:
        """One turn of a kind that is ready, as short as it can be. What it raises is the end of all
        of the lane's jobs, and DeviceLost of every lane's."""

    @abstractmethod
    def jobs(self) -> list[Job]:
        """All that are not over."""

    @abstractmethod
    def clear(self, job: Job) -> None:
        """Free what a job holds."""

    @abstractmethod
    def warm_up(self) -> Iterator[None]:
        """Run passes of the usual shapes, one at a time: the plan of a new one takes longer than
        the pass."""

    def sweep(self) -> None:
        """Free what jobs hold that were given up or take too long."""
        for job in self.jobs():
            if job.cancelled:
                self.totals.cancelled += 1
                self.clear(job)
            elif job.late:
                self.fail(job, TIMEOUT, f"the request took over {job.task.seconds:g} s")

    def forget(self) -> None:
        """Give back what is kept on the device between jobs."""
        return

    def reopened(self, model: Any) -> None:
        """Go on with the same model on another device."""
        self.model = model

    def fail(self, job: Job, reason: str, message: str) -> None:
        self.totals.failed += 1
        job.tell(Failed(reason, message))
        self.clear(job)

    def fail_all(self, reason: str, message: str) -> None:
        for job in self.jobs():
            self.fail(job, reason, message)
