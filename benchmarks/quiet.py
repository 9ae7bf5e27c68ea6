"""Samples on a shared machine: how much of the processors others took while one was measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
LIMIT = 0.05
TRIES = 8


@dataclass(frozen=True)
class Sample(Generic[T]):
    """A result and the share of all processors' time that other processes took meanwhile."""

    result: T
    others: float

    @property
    def quiet(self) -> bool:
        return self.others <= LIMIT


def quietly(work: Callable[[], T]) -> Sample[T]:
    """Repeats ``work`` until others took at most 5%; the quietest sample after some tries."""
    best: Sample[T] | None = None
    for _ in range(TRIES):
        sample = taken(work)
        if best is None or sample.others < best.others:
            best = sample
        if best.quiet:
            break
    assert best is not None
    return best


def taken(work: Callable[[], T]) -> Sample[T]:
    """One sample, quiet or not. Linux only: reads /proc/stat."""
    all_before, busy_before = _machine()
    own_before = _own()
    result = work()
    all_after, busy_after = _machine()
    spent = max(all_after - all_before, 1e-9)
    others = (busy_after - busy_before) - (_own() - own_before)
    return Sample(result, max(others, 0.0) / spent)


def _machine() -> tuple[float, float]:
    """Seconds of all processors since boot: all of them, and those not idle (steal included)."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    idle = fields[3] + fields[4]
    return sum(fields) / tick, (sum(fields) - idle) / tick


def _own() -> float:
    """Seconds that this process and its ended children ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
