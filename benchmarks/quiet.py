"""Samples on a shared machine: those during which others ran are taken again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from ferro.neighbours import Watch, quiet

TRIES = 3
Value = TypeVar("Value", covariant=True)


@dataclass(frozen=True)
class Sample(Generic[Value]):
    """What was measured, and the share of the processors that others took meanwhile, if it is
    known."""

    value: Value
    others: float | None


@dataclass(frozen=True)
class Turns:
    """Rounds of the same samples, which lie side by side in time."""

    rounds: list[dict[str, Sample[float]]]

    def value(self, name: str) -> float:
        return median(one[name].value for one in self.rounds)

    def ratio(self, name: str, to: str) -> float:
        """The median over rounds of the ratio within one."""
        return median(one[name].value / one[to].value for one in self.rounds)

    def others(self, *names: str) -> float | None:
        """The largest share that others took during a sample that counts, of these or of all."""
        counted = [one[name] for one in self.rounds for name in names or one]
        return max((s.others for s in counted if s.others is not None), default=None)


def in_turns(samples: Mapping[str, Callable[[], float]], rounds: int) -> Turns:
    return Turns([{n: quietly(work) for n, work in samples.items()} for _ in range(rounds)])


def quietly(work: Callable[[], Value], beside: Sequence[int] = ()) -> Sample[Value]:
    """Repeats ``work`` until others took at most 5%; the quietest sample after some tries. The
    processes of ``beside`` are not others."""
    taken: list[Sample[Value]] = []
    while not taken or (len(taken) < TRIES and not quiet(taken[-1].others)):
        watch = Watch(beside)
        value = work()
        taken.append(Sample(value, watch.others()))
    return min(taken, key=lambda sample: sample.others or 0.0)
