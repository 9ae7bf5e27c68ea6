"""Device times from events."""

from __future__ import annotations

from dataclasses import dataclass

from ferro.runtime.profiler import Profiler, Timing, summarise


@dataclass
class Profile:
    queued: int
    start: int
    end: int


@dataclass
class Event:
    profile: Profile


def test_timings_are_in_seconds_and_in_order() -> None:
    profiler = Profiler()
    profiler.add("a", Event(Profile(1, 2_000_000_000, 3_000_000_000)))
    profiler.add("b", Event(Profile(1, 5_000_000_000, 5_500_000_000)))
    assert [(t.name, t.seconds) for t in profiler.timings()] == [("a", 1.0), ("b", 0.5)]


def test_totals_by_name_the_largest_first() -> None:
    timings = [
        Timing("a", 0, 0, 1),
        Timing("b", 0, 0, 5),
        Timing("a", 0, 1, 4),
        Timing("a", 0, 4, 6),
    ]
    b, a = summarise(timings)[0], summarise(timings)[1]
    assert (b.name, a.name) == ("a", "b")
    assert (b.count, b.seconds, b.median, b.best) == (3, 6, 2, 1)
    assert summarise([]) == []
