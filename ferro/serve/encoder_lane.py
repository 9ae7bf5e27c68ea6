"""The lane of a model that sees whole inputs: inputs of all requests, packed into shared passes.

A pass takes an input of each request in turn, until it has no room: a request of thousands holds
up one of a few by no more than its place in every pass. Inputs that are longer than a usual pass
have their own ones, which are work of another kind with a share of its own, and rest after parts.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ferro.models.packing import Input
from ferro.models.sampler import Floats
from ferro.runtime.errors import DeviceLost
from ferro.serve.jobs import Encoded, Encoding, Job
from ferro.serve.lanes import BROKEN, NUMBERS, Gate, Lane
from ferro.serve.totals import EncoderTotals

if TYPE_CHECKING:
    from ferro.models.encoder import Encoder

log = logging.getLogger("ferro.serve")
PACKED, LONG = "packed", "long"


class Inputs:
    """The inputs of a job that wait, by their numbers, the shortest first; and the rows of those
    that were computed."""

    def __init__(self, job: Job[Encoding], batch: int) -> None:
        """``batch`` is how many rows a usual pass has."""
        self.job = job
        given = job.task.inputs
        order = sorted(range(len(given)), key=self._length)
        usual = bisect_right(order, batch, key=self._length)
        self.packed, self.long = order[:usual], order[usual:]
        self._rows: list[Floats | None] = [None] * len(given)
        self._missing = len(given)

    @property
    def tokens(self) -> int:
        """Of all that wait."""
        return sum(map(self._length, [*self.packed, *self.long]))

    def take(self, room: int) -> int | None:
        """The longest that fits ``room`` rows, which waits no more."""
        at = bisect_right(self.packed, room, key=self._length)
        return self.packed.pop(at - 1) if at else None

    def put(self, number: int, rows: Floats) -> None:
        """The ``rows`` of an input; with the last one the job is told of all."""
        self._rows[number] = rows
        self._missing -= 1
        if not self._missing:
            self.job.tell(Encoded(0, [each for each in self._rows if each is not None]))

    def _length(self, number: int) -> int:
        return len(self.job.task.inputs[number])


Part = tuple[Inputs, int]  # of a pass: an input of a job by its number


class Pass:
    """A pass that is under way: its ``parts``, and the ``seconds`` that it has taken."""

    def __init__(
        self, parts: list[Part], start: Callable[[list[Input]], Iterator[Floats | None]]
    ) -> None:
        self.parts, self.seconds = parts, 0.0
        self.inputs = [own.job.task.inputs[number] for own, number in parts]
        self._steps = start(self.inputs)

    def go_on(self) -> Floats | None:
        """The rows of all inputs, None at a rest. Raises what the model does."""
        started = time.perf_counter()
        rows = next(self._steps)
        self.seconds += time.perf_counter() - started
        return rows


class EncoderLane(Lane):
    """Serves one encoder. ``kind`` is the model's; ``sample`` makes an input of so many tokens, to
    warm up with."""

    model: Encoder

    def __init__(
        self,
        gate: Gate,
        model: Encoder,
        most_waiting: int,
        sample: Callable[[int], Input] = lambda length: Input((0,) * length),
        part_seconds: float = 0.04,
    ) -> None:
        """``most_waiting`` is how many jobs may wait besides one that is served; long passes rest
        after ``part_seconds``."""
        super().__init__(gate, model, most_waiting)
        self.kind = model.kind
        self.totals: EncoderTotals = EncoderTotals()
        self._sample, self._part_seconds = sample, part_seconds
        self._long_pass: Pass | None = None
        self._waiting: deque[Inputs] = deque()

    # ------------------------------------------------------------------- from other threads

    def check(self, job: Job[Encoding]) -> None:
        """Whoever makes inputs has checked them."""

    def put(self, job: Job[Encoding]) -> None:
        self._waiting.append(Inputs(job, self.model.batch))

    @property
    def waiting(self) -> int:
        """Jobs that are not over."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return self.waiting > self._most_waiting

    @property
    def seconds_ahead(self) -> float:
        totals = self.totals
        rate = totals.seconds / totals.tokens if totals.tokens else 0.0
        return rate * sum(each.tokens for each in self._waiting)

    # -------------------------------------------------------------------- the engine's thread

    @property
    def ready(self) -> Sequence[str]:
        with self.gate.changed:
            packed = any(each.packed for each in self._waiting)
            long = self._long_pass is not None or any(each.long for each in self._waiting)
        return [work for work, there in ((PACKED, packed), (LONG, long)) if there]

    def step(self, work: str) -> None:
        """A pass, or a part of a long one. One that fails is the end of the jobs in it."""
        with self.gate.changed:
            passing = self._long() if work == LONG else self._packed()
        try:
            rows = passing.go_on()
        except DeviceLost:
            raise
        except Exception as error:
            log.exception("a pass failed")
            self._fail(passing.parts, BROKEN, f"the model could not go on: {error}")
            return
        if rows is not None:
            self._done(passing, rows)

    def _done(self, passing: Pass, rows: Floats) -> None:
        inputs = passing.inputs
        self.totals.passed(len(inputs), sum(map(len, inputs)), passing.seconds)
        if passing is self._long_pass:
            self._long_pass = None
        ends = np.add.accumulate([len(each.wanted) or 1 for each in inputs])
        for part, own in zip(passing.parts, np.split(rows, ends[:-1]), strict=True):
            self._put(part, own)

    def jobs(self) -> list[Job[Encoding]]:
        with self.gate.changed:
            return [each.job for each in self._waiting]

    def clear(self, job: Job[Encoding]) -> None:
        with self.gate.changed:
            self._waiting = deque(each for each in self._waiting if each.job is not job)
        if self._long_pass is not None and self._long_pass.parts[0][0].job is job:
            self._long_pass = None
        job.open.clear()

    def warm_up(self) -> Iterator[None]:
        most = min(self.model.batch, self.model.context)
        sizes = [1 << power for power in range(2, most.bit_length())]
        passes = [[self._sample(size)] for size in sizes]
        passes += [[self._sample(size)] * (most // size) for size in sizes[:-1]]
        for inputs in passes:
            self.model.forward(inputs)
            yield

    def _packed(self) -> Pass:
        """A pass with one input of each job in turn, while there is room."""
        parts: list[Part] = []
        turns = deque(each for each in self._waiting if each.packed)
        room = self.model.batch
        while turns:
            own = turns.popleft()
            number = own.take(room)
            if number is not None:
                parts.append((own, number))
                room -= len(own.job.task.inputs[number])
                turns.append(own)
        self._waiting.rotate(-1)
        return Pass(parts, lambda inputs: (self.model.forward(each) for each in [inputs]))

    def _long(self) -> Pass:
        """The pass that is under way, or that of the shortest long input of the job whose turn it
        is."""
        if self._long_pass is None:
            own = next(each for each in self._waiting if each.long)
            self._waiting.remove(own)
            self._waiting.append(own)
            parts = [(own, own.long.pop(0))]
            start = partial(self.model.in_parts, seconds=self._part_seconds)
            self._long_pass = Pass(parts, start)
        return self._long_pass

    def _put(self, part: Part, rows: Floats) -> None:
        own, number = part
        if own.job.over:
            return
        if not np.isfinite(rows).all():
            self._fail([part], NUMBERS, f"the model gave no numbers for input {number}")
            return
        own.put(number, rows)
        if own.job.over:
            self.clear(own.job)

    def _fail(self, parts: Iterable[Part], reason: str, message: str) -> None:
        for own, _ in parts:
            if not own.job.over:
                self.fail(own.job, reason, message)
