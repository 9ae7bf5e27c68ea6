"""The lane of a language model: streams of tokens in slots, batched pass by pass.

A turn lets waiting jobs into free slots, computes a token of every stream that decodes and a slice
of a prompt, and takes a token from every row of logits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ferro.models.passes import Piece
from ferro.models.sampler import BadLogits, Floats
from ferro.runtime.errors import OutOfMemory
from ferro.serve.jobs import Job
from ferro.serve.lanes import BROKEN, NUMBERS, Gate, Lane
from ferro.serve.pacing import SHORT, SIZES, Pacing
from ferro.serve.prefixes import Prefixes
from ferro.serve.scheduler import Turns
from ferro.serve.streams import Stream, completion_of
from ferro.serve.totals import Totals
from ferro.serve.waiting import Fork, Queue, Waiting

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

log = logging.getLogger("ferro.serve")
STREAMS = ("streams",)


class StreamLane(Lane):
    """Serves the completions of one model."""

    kind = "language"
    keeps = True
    model: LanguageModel

    def __init__(
        self,
        gate: Gate,
        model: LanguageModel,
        pacing: Pacing,
        prefixes: Prefixes,
        most_waiting: int,
    ) -> None:
        """``most_waiting`` is how many jobs may wait for a slot."""
        super().__init__(gate, model, most_waiting)
        self.pacing, self.prefixes = pacing, prefixes
        self.totals: Totals = Totals()
        self._queue = Queue(gate.changed)
        self._turns = Turns()
        self._streams: dict[int, Stream] = {}
        self._mean_seconds = 1.0

    # ------------------------------------------------------------------- from other threads

    def check(self, job: Job) -> None:
        """Raises BadRequest, BadSampling."""
        completion_of(job.task, self.model.tokenizer, self.model.context)

    def put(self, job: Job) -> None:
        self._queue.put(job)

    @property
    def active(self) -> int:
        """Slots in use."""
        return len(self._streams)

    @property
    def waiting(self) -> int:
        """Choices that wait for a slot."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        return self._queue.requests >= self._most_waiting + self.model.slots - self.active

    @property
    def seconds_ahead(self) -> float:
        return self.waiting / self.model.slots * self._mean_seconds

    # -------------------------------------------------------------------- the engine's thread

    @property
    def ready(self) -> Sequence[str]:
        return STREAMS if self._streams or len(self._queue) else ()

    def step(self, work: str) -> None:
        self._admit()
        if self._streams:
            self._pass()

    def warm_up(self) -> Iterator[None]:
        sizes = [size for size in SIZES if size <= min(self.model.context, self.model.most_rows)]
        shapes = [[Piece(0, 0, (0,) * size)] for size in sizes]
        shapes += [[Piece(i, 0, (0,)) for i in range(n)] for n in range(2, self.model.slots + 1)]
        for pieces in shapes:
            self.model.forward(pieces)
            yield

    def forget(self) -> None:
        self.prefixes.clear()

    def reopened(self, model: LanguageModel) -> None:
        self.model = self.prefixes.store = model

    def _pass(self) -> None:
        """A token of every stream that decodes, then a slice of a prompt: passes of few shapes,
        since what a pass needs is made anew for every shape."""
        decoding = [stream for stream in self._streams.values() if not stream.missing]
        if decoding:
            self._forward(decoding, [stream.piece() for stream in decoding])
        filling = [stream for stream in self._streams.values() if stream.missing]
        filling.sort(key=lambda stream: stream.job.clock.made)
        # what is short takes little of anybody's time
        waits = decoding and self.pacing.owes and all(each.missing > SHORT for each in filling)
        if filling and not waits:
            stream, count = self._turns.next(filling, self.pacing.rows)
            self._forward([stream], [stream.piece(count)])

    def _forward(self, streams: Sequence[Stream], pieces: Sequence[Piece]) -> None:
        """One pass. Note what slots hold then, keep what is worth it, choose tokens."""
        filled = len(pieces[0].tokens) if streams[0].missing else 0
        started = time.perf_counter()
        logits = self.model.forward(pieces)
        seconds = time.perf_counter() - started
        self.pacing.passed(filled, seconds)
        self.totals.passed(0 if filled else len(pieces), filled, seconds)
        for stream, piece, row in zip(streams, pieces, logits, strict=True):
            stream.held = piece.end
            if stream.at_boundary:
                self.prefixes.keep(stream.job.task, piece.end, stream.slot)
            if not stream.missing:
                self._took(stream, row)

    def _took(self, stream: Stream, row: Floats) -> None:
        """Go on with the logits after the whole text of a stream."""
        if not stream.choice and not stream.completion.ids:
            self._fork(stream, row)
        self._feed(stream, row)

    def _feed(self, stream: Stream, row: Floats) -> None:
        """Choose a token of a stream."""
        if stream.job.cancelled or stream.job.over:
            return
        try:
            stream.feed(row)
        except BadLogits as error:
            self.fail(stream.job, NUMBERS, str(error))
            return
        except Exception as error:
            log.exception("a token could not be chosen")
            self.fail(stream.job, BROKEN, f"a token could not be chosen: {error}")
            return
        self.totals.tokens += 1
        if stream.completion.finish is not None:
            self._streams.pop(stream.slot, None)
            self._note_end(stream.job)

    # -------------------------------------------------------------------------- in and out

    def _admit(self) -> None:
        """Let waiting choices into free slots."""
        for slot in range(self.model.slots):
            while slot not in self._streams:
                waiting = self._queue.take()
                if waiting is None:
                    return
                try:
                    self._begin(waiting, slot)
                except Exception as error:
                    # it is in no slot yet where others would find it
                    self.fail(waiting.job, BROKEN, f"the completion could not begin: {error}")
                    raise

    def _begin(self, waiting: Waiting, slot: int) -> None:
        """Give a choice its slot; it may have ended already."""
        job, fork = waiting.job, waiting.fork
        if job.over or job.cancelled:
            waiting.give_up()
            return
        model, task = self.model, job.task
        completion = completion_of(task, model.tokenizer, model.context, waiting.choice)
        if job.clock.started is None:
            job.clock.started = time.perf_counter()
        boundaries = [] if fork else self.prefixes.boundaries(task)
        stream = Stream(job, waiting.choice, slot, completion, boundaries)
        if stream.tell_end():
            if not waiting.choice:
                self._queue.put_rest(job, None)
            self._note_end(job)
            return
        self._streams[slot] = stream
        if fork is None:
            stream.held = self.prefixes.restore(task, slot)
            if not waiting.choice:
                job.clock.cached_tokens = stream.held
                self.totals.cached_tokens += stream.held
            return
        model.restore(fork.snapshot, slot)
        stream.held = len(task.prompt)
        self._feed(stream, fork.row)
        fork.used()

    def _fork(self, stream: Stream, row: Floats) -> None:
        """The prompt of a job's first choice is filled: let the others go on from it."""
        job = stream.job
        others = job.task.choices - 1
        if not others:
            return
        fork = None
        try:
            fork = Fork(self.model.save(stream.slot), row.copy(), others)
        except OutOfMemory:
            log.warning("no memory for a copy of a slot: every choice fills its prompt anew")
        self._queue.put_rest(job, fork)

    def jobs(self) -> list[Job]:
        found = [stream.job for stream in self._streams.values()] + self._queue.jobs()
        return list({id(job): job for job in found if not job.over}.values())

    def clear(self, job: Job) -> None:
        """Free the slots and places of a job."""
        self._queue.drop(job)
        self._streams = {n: s for n, s in self._streams.items() if s.job is not job}
        job.open.clear()

    def _note_end(self, job: Job) -> None:
        clock = job.clock
        if job.over and clock.ended is not None and clock.started is not None:
            self._mean_seconds += 0.2 * (clock.ended - clock.started - self._mean_seconds)
