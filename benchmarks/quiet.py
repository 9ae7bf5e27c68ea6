"""Samples on a shared machine: those during which others ran are taken again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from ferro.neighbours import Watch, quiet

TRIES = 3


@dataclass(frozen=True)
class Sample:
    """A number and the share of the processors that others took meanwhile, if it is known."""

    value: float
    others: float | None


@dataclass(frozen=True)
class Turns:
    """Rounds of the same samples, which lie side by side in time."""

    rounds: list[dict[str, Sample]]

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


def quietly(work: Callable[[], float]) -> Sample:
    """Repeats ``work`` until others took at most 5%; the quietest sample after some tries."""
    taken: list[Sample] = []
    while not taken or (len(taken) < TRIES and not quiet(taken[-1].others)):
        watch = Watch()
        value = work()
        taken.append(Sample(value, watch.others()))
    return min(taken, key=lambda sample: sample.others or 0.0)
