"""The engine: the one thread that uses the device. Jobs come in by a queue, events go out.

Between two passes it drops jobs that were given up, lets waiting ones into free slots, asks the
scheduler for the rows of the next pass, and takes a token from every row of logits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ferro.models.passes import Piece
from ferro.models.sampler import BadLogits, Floats
from ferro.runtime.errors import DeviceLost, OutOfMemory
from ferro.serve.jobs import Failed, Job
from ferro.serve.pacing import SHORT, SIZES, Pacing
from ferro.serve.prefixes import Prefixes
from ferro.serve.scheduler import Turns
from ferro.serve.streams import Stream, completion_of
from ferro.serve.totals import Totals
from ferro.serve.waiting import Fork, Queue, Waiting

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

log = logging.getLogger("ferro.serve")

# why jobs fail
TIMEOUT, CLOSED, BROKEN, NUMBERS = "timeout", "closed", "broken", "numbers"
Reopen = Callable[[int], "LanguageModel"]
OPENINGS = 2  # of a lost device: what does not open counts as lost once more
LONGEST_WAIT = 60  # seconds that a client is asked to wait at most


class Busy(Exception):
    """The queue is full; ``retry_after`` is when it may have room, in seconds."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting} requests wait already: try again later")
        self.retry_after = retry_after


class Closing(Exception):
    """The server is about to end and takes no more work."""


class Engine:
    """Serves the completions of one model. ``start`` it, ``submit`` jobs, ``close`` it."""

    def __init__(
        self,
        model: LanguageModel,
        pacing: Pacing,
        prefixes: Prefixes,
        most_waiting: int,
        warm: bool = False,
        reopen: Reopen | None = None,
    ) -> None:
        """``most_waiting`` is how many jobs may wait for a slot; with ``warm`` the thread first
        runs passes of all shapes that it will need. ``reopen`` gives the model anew after its
        device was lost for the nth time."""
        self.model, self.pacing, self.prefixes = model, pacing, prefixes
        self.totals = Totals()
        self.closing = False
        self._most_waiting = most_waiting
        self._queue = Queue()
        self._turns = Turns()
        self._streams: dict[int, Stream] = {}
        self._stopped, self._warm = False, warm
        self._reopen = reopen
        self.losses = 0
        self._mean_seconds = 1.0
        self._thread = threading.Thread(target=self._run, name="ferro-engine", daemon=True)

    # ------------------------------------------------------------------- from other threads

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Take a job. Raises BadRequest, BadSampling, Busy, Closing; then no event comes."""
        completion_of(job.task, self.model.tokenizer, self.model.context)
        with self._queue.changed:
            if self.closing:
                raise Closing("the server is shutting down")
            if self.waiting >= self._most_waiting + self.model.slots - self.active:
                self.totals.refused += 1
                raise Busy(self.waiting, self._retry_after())
            self.totals.requests += 1
            self._queue.put(job)

    def drain(self) -> None:
        """Take no more jobs; those that were taken go on."""
        with self._queue.changed:
            self.closing = True

    def close(self, timeout: float = 30.0) -> None:
        """Let every job fail and end the thread."""
        with self._queue.changed:
            self.closing = self._stopped = True
            self._queue.changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def warming(self) -> bool:
        """Whether it still prepares what passes need."""
        return self._warm

    @property
    def active(self) -> int:
        """Slots in use."""
        return len(self._streams)

    @property
    def waiting(self) -> int:
        """Choices that wait for a slot."""
        return len(self._queue)

    def _retry_after(self) -> int:
        rounds = self.waiting / self.model.slots
        return max(1, min(LONGEST_WAIT, round(rounds * self._mean_seconds)))

    # --------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        if self._warm:
            self._warm_up()
        while not self._stopped:
            with self._queue.changed:
                while not (len(self._queue) or self._streams or self._stopped):
                    self._queue.changed.wait()
            self._step()
        self._fail_all(CLOSED, "the server is shutting down")
        self.prefixes.clear()

    def _warm_up(self) -> None:
        """Run every shape of pass once: the plan of a new one takes longer than the pass."""
        started = time.perf_counter()
        sizes = [size for size in SIZES if size <= min(self.model.context, self.model.most_rows)]
        shapes = [[Piece(0, 0, (0,) * size)] for size in sizes]
        shapes += [[Piece(i, 0, (0,)) for i in range(n)] for n in range(2, self.model.slots + 1)]
        try:
            for pieces in shapes:
                if self._stopped:
                    return
                self.model.forward(pieces)
        except Exception:
            log.exception("a pass of warming up failed")
        self._warm = False
        log.info("warm after %.1f s", time.perf_counter() - started)

    def _step(self) -> None:
        try:
            self._drop()
            self._admit()
            if self._streams:
                self._pass()
        except Exception as error:
            log.exception("a pass failed")
            self._fail_all(BROKEN, f"the model could not go on: {error}")
            if isinstance(error, DeviceLost):
                self._recover()

    def _recover(self) -> None:
        """Go on with the model on a device that was opened anew; end where that cannot be."""
        self.prefixes.clear()
        for _ in range(OPENINGS):
            self.losses += 1
            if self._reopen is None:
                return
            log.error("the device was lost (%d): opening it again", self.losses)
            try:
                self.model = self.prefixes.store = self._reopen(self.losses)
                return
            except Exception:
                log.exception("the model cannot be opened again")
        self.closing = self._stopped = True

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
            self._fail(stream.job, NUMBERS, str(error))
            return
        except Exception as error:
            log.exception("a token could not be chosen")
            self._fail(stream.job, BROKEN, f"a token could not be chosen: {error}")
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
                    self._fail(waiting.job, BROKEN, f"the completion could not begin: {error}")
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

    def _drop(self) -> None:
        """Free what jobs hold that were given up or take too long."""

        def late(job: Job) -> bool:
            return job.late and not job.cancelled

        jobs = {id(stream.job): stream.job for stream in self._streams.values()}
        waiting = {id(each.job): each.job for each in self._queue.drop(lambda job: job.cancelled)}
        gone = [job for job in {**jobs, **waiting}.values() if job.cancelled and not job.over]
        for job in gone:
            self.totals.cancelled += 1
            self._clear(job)
        slow = {id(each.job): each.job for each in self._queue.drop(late)}
        for job in {**jobs, **slow}.values():
            if late(job) and not job.over:
                self._fail(job, TIMEOUT, f"the request took over {job.task.seconds:g} s")

    def _fail(self, job: Job, reason: str, message: str) -> None:
        self.totals.failed += 1
        job.tell(Failed(reason, message))
        self._clear(job)

    def _fail_all(self, reason: str, message: str) -> None:
        waiting = self._queue.drop(lambda _: True)
        jobs = [stream.job for stream in self._streams.values()]
        for job in {id(job): job for job in [*jobs, *(each.job for each in waiting)]}.values():
            if not job.over:
                self._fail(job, reason, message)
        self._streams.clear()

    def _clear(self, job: Job) -> None:
        """Free the slots and places of a job."""
        self._queue.drop(lambda other: other is job)
        self._streams = {n: s for n, s in self._streams.items() if s.job is not job}
        job.open.clear()

    def _note_end(self, job: Job) -> None:
        clock = job.clock
        if job.over and clock.ended is not None and clock.started is not None:
            self._mean_seconds += 0.2 * (clock.ended - clock.started - self._mean_seconds)
