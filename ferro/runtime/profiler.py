"""Device time of every launch, from the timestamps of its event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Timing:
    """One command: its name and when it ran, in seconds of the device's clock (of the host's where
    the device has none)."""

    name: str
    queued: float
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass
class Profiler:
    """Collects events while it is attached to a queue; ``timings`` may be read once they are
    complete. ``measured`` takes times of the host's clock: an interpreter has no events, and those
    of some drivers (llvmpipe) no clock."""

    events: list[tuple[str, Any]] = field(default_factory=list)
    measured: list[Timing] = field(default_factory=list)

    def add(self, name: str, event: Any) -> None:
        self.events.append((name, event))

    def timings(self) -> list[Timing]:
        """Every command in order. Waits for none: call it after ``finish``."""
        found = list(self.measured)
        for name, event in self.events:
            profile = event.profile
            found.append(
                Timing(name, profile.queued * 1e-9, profile.start * 1e-9, profile.end * 1e-9)
            )
        return found

    def totals(self) -> list[Total]:
        """Time by name, the largest first."""
        return summarise(self.timings())


@dataclass(frozen=True)
class Total:
    """All commands of one name; times in seconds."""

    name: str
    count: int
    seconds: float
    median: float
    best: float


def summarise(timings: Iterable[Timing]) -> list[Total]:
    """Totals by name, the largest first."""
    by_name: dict[str, list[float]] = {}
    for timing in timings:
        by_name.setdefault(timing.name, []).append(timing.seconds)
    totals = [Total(n, len(t), sum(t), median(t), min(t)) for n, t in by_name.items()]
    return sorted(totals, key=lambda total: -total.seconds)
