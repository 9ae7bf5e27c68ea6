"""A model without a device that keeps slots apart, and an engine on it that is driven by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ferro.models.completion import Options
from ferro.models.passes import Piece
from ferro.models.sampler import Sampling
from ferro.serve.engine import Engine
from ferro.serve.jobs import Ended, Event, Failed, Job, Task, Token
from ferro.serve.lanes import Gate
from ferro.serve.pacing import Pacing
from ferro.serve.prefixes import Prefixes
from ferro.serve.stream_lane import StreamLane
from tests.models import fakes

GREEDY = Sampling(temperature=0)


class Kept:
    """A fake's snapshot."""

    def __init__(self, held: Sequence[int], alive: set[int]) -> None:
        self.held, self.nbytes, self._alive = list(held), 10 * len(held), alive
        alive.add(id(self))

    def release(self) -> None:
        self._alive.remove(id(self))


class FakeModel(fakes.FakeModel):
    """With slots, snapshots of ten bytes a token, and passes that can be slow or fail."""

    most_rows = 1024

    def __init__(self, *args: Any, slots: int = 2, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slots = slots
        self.alive: set[int] = set()
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.batches: list[list[Piece]] = []

    @property
    def rewinds(self) -> bool:
        return bool(self.hyperparameters.layers[0].attends)

    def forward(self, pieces: Sequence[Piece]) -> Any:
        assert len({piece.slot for piece in pieces}) == len(pieces)
        assert all(0 <= piece.slot < self.slots for piece in pieces)
        time.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        self.batches.append(list(pieces))
        return super().forward(pieces)

    def save(self, slot: int) -> Kept:
        return Kept(self.held[slot], self.alive)

    def restore(self, snapshot: Kept, slot: int, tokens: int | None = None) -> None:
        count = len(snapshot.held) if tokens is None else tokens
        assert count == len(snapshot.held) or self.rewinds
        self.held[slot] = snapshot.held[:count]

    def snapshot_bytes(self, tokens: int) -> int:
        return 10 * tokens


class Alone(Engine):
    """An engine of one lane, with all that the lane has."""

    def __init__(self, gate: Gate, lane: Any, **more: Any) -> None:
        super().__init__(gate, [lane], **more)
        self.lane = lane

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["lane"], name)


def engine_on(
    model: Any,
    budget: int = 0,
    most_waiting: int = 64,
    tails: bool = True,
    reopen: Callable[[int], Any] | None = None,
    **more: Any,
) -> Alone:
    """An engine of streams alone."""
    gate, pacing = Gate(), Pacing(0.25, 0.4, 1024)
    lane = StreamLane(gate, model, pacing, Prefixes(model, budget, tails), most_waiting)
    if reopen is not None:
        more["reopen"] = lambda losses: {"language": reopen(losses)}
    return Alone(gate, lane, **more)


@contextmanager
def running(engine: Alone) -> Iterator[Alone]:
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def task(prompt: Sequence[int], most: int | None = 8, **more: Any) -> Task:
    options = more.pop("options", None) or Options(more.pop("sampling", GREEDY), most, (), True)
    return Task(tuple(prompt), options, **more)


class Heard:
    """A job and what was told of it."""

    def __init__(self, made: Task) -> None:
        self.events: list[Event] = []
        self.job = Job(made, self.events.append)

    def ids(self, choice: int = 0) -> list[int]:
        return [e.id for e in self.events if isinstance(e, Token) and e.choice == choice]

    def text(self, choice: int = 0) -> str:
        parts = (e.text for e in self.events if isinstance(e, Token) and e.choice == choice)
        return "".join(parts)

    @property
    def ended(self) -> list[Ended]:
        return [e for e in self.events if isinstance(e, Ended)]

    @property
    def failed(self) -> Failed | None:
        return next((e for e in self.events if isinstance(e, Failed)), None)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


def run(engine: Alone, *tasks: Task) -> list[Heard]:
    """All tasks at once, to their ends."""
    heard = [Heard(made) for made in tasks]
    for each in heard:
        engine.submit(each.job)
    until(lambda: all(each.job.over for each in heard))
    return heard


def solo(model: Callable[[], FakeModel], *tasks: Task) -> list[Heard]:
    """Each task on a model of its own."""
    found = []
    for made in tasks:
        with running(engine_on(model())) as engine:
            found += run(engine, made)
    return found


def prompt(seed: int, size: int) -> list[int]:
    return np.random.default_rng(seed).integers(20, 250, size).tolist()
