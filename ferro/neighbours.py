"""How much of the processors other programs took while something was measured.

Reads Linux's /proc/stat for the processors that this process may run on; elsewhere nothing is
known, and measurements are taken as they come.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

QUIET = 0.05
PROC = Path("/proc")
LEAST_TICKS = 2  # the kernel counts in ticks: less than this is no sign of another program


@dataclass(frozen=True)
class _Reading:
    """Seconds of our processors since boot, all and not idle, and those that are our own."""

    passed: float
    busy: float
    own: float


class Watch:
    """Starts when it is made; ``others()`` tells what happened since.

    Our own are this process, its children that have ended, and the processes of ``ids``.
    """

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._ids = tuple(ids)
        self._start = _read(self._ids)

    def others(self) -> float | None:
        """The share of the processors' time that others took, 0 to 1; None if it is not known."""
        start, end = self._start, _read(self._ids)
        if start is None or end is None:
            return None
        taken = (end.busy - start.busy) - (end.own - start.own)
        if taken < LEAST_TICKS / os.sysconf("SC_CLK_TCK"):
            return 0.0
        return min(1.0, taken / max(end.passed - start.passed, 1e-9))


def quiet(others: float | None) -> bool:
    """True for a sample that others did not disturb, as far as is known."""
    return others is None or others <= QUIET


def _read(ids: Sequence[int]) -> _Reading | None:
    try:
        lines = (PROC / "stat").read_text().splitlines()
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        beside = sum(map(_ticks, ids))
    except (OSError, AttributeError):
        return None
    rows = [line.split() for line in lines if line.startswith("cpu")]
    counts = [[int(n) for n in row[1:9]] for row in rows if row[0] in mine]
    if not counts:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    passed = sum(map(sum, counts)) / tick
    idle = sum(row[3] + row[4] for row in counts) / tick
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return _Reading(passed, passed - idle, own + beside / tick)


def _ticks(process: int) -> int:
    """Ticks of the clock that a process has computed for. Raises OSError."""
    after_name = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])
