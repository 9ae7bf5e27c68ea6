"""The speeds that Ferro wants to reach, beside those that it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.products import Matrix


@dataclass(frozen=True)
class Target:
    """One line: ``reached`` is wanted to be at most (or at least) ``wanted``; None: no target."""

    what: str
    reached: float
    wanted: float | None
    at_least: bool = False
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        if self.wanted is None:
            return None
        return self.reached >= self.wanted if self.at_least else self.reached <= self.wanted

    @property
    def share(self) -> float | None:
        """How far: 1 is just met, more is better."""
        if self.wanted is None:
            return None
        return self.reached / self.wanted if self.at_least else self.wanted / self.reached

    def line(self) -> list[object]:
        sign = "at least" if self.at_least else "at most"
        wanted = f"{sign} {self.wanted:g} {self.unit}" if self.wanted is not None else None
        return [self.what, f"{self.reached:.3g} {self.unit}", wanted, self.met]


COLUMNS = ["what", "reached", "target", "met"]

# Other devices have no targets of their own for these two.
EIGHT_ROWS = {"intel": 1.3, "pocl": 1.75}
NUMPY = {"intel": 3.3, "pocl": 2.3}


def of_products(device: str, found: Iterable[Matrix]) -> Iterator[Target]:
    """``device`` is an alias of `ferro devices`."""
    for m in found:
        shape = f"{m.n} x {m.k}"
        yield Target(f"1 row, {shape}: of the rate of reading", m.share_of_reading, 0.9, True)
        yield Target(f"8 rows, {shape}: times 1 row", m.eight_to_one, EIGHT_ROWS.get(device))
        for rows in (192, 762):
            what = f"{rows} rows, {shape}: times numpy's float32"
            yield Target(what, m.times_numpy(rows), NUMPY.get(device), True)
        yield Target(f"a row of 762, {shape}: times a row of 192", m.row_of_762, 1.05)


COSTS = {"launch through a plan": (6.0, "us"), "friendly call": (40.0, "us")}
TIMES = {
    "slowest code generation": (0.05, "s"),
    "all shipped kernels built cold": (25.0, "s"),
    "loaded warm": (0.5, "s"),
}


def of_host(found: Mapping[str, float]) -> Iterator[Target]:
    """Costs in microseconds and times in seconds, by name."""
    for what, reached in found.items():
        wanted, unit = {**COSTS, **TIMES}[what]
        yield Target(what, reached, wanted, unit=unit)
