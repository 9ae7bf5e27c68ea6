"""The q8 matrix product: one row against reading memory, many rows against numpy's float32."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.quiet import Turns, in_turns, quietly
from ferro import arguments
from ferro.catalogue import find
from ferro.codegen.program import Config
from ferro.measure import Request
from ferro.runtime.device import Device
from ferro.runtime.limits import samplers
from ferro.speed import launcher, turn

MATRICES = ((9216, 1024), (1024, 4608))
ROWS = (1, 8, 192, 762)
# Schedules worth trying for so many rows; the fastest one counts.
LARGE = (
    Config({"BM": 8, "BN": 32}, prefetch=False),
    *(Config({"BM": 4, "BN": 64}, prefetch=False, group=n) for n in (0, 4, 8)),
)
SCHEDULES = {
    1: (Config({"BM": 1, "BN": 32}), Config({"BM": 1, "BN": 64})),
    8: (Config({"BM": 8, "BN": 16}), Config({"BM": 4, "BN": 64}), Config({"BM": 8, "BN": 32})),
    192: LARGE,
    762: LARGE,
}
# Few rows read every weight once a launch, so caches must not hold any: cycle through a lot.
FOOTPRINT = {1: 512 << 20, 8: 512 << 20, 192: 64 << 20, 762: 64 << 20}


@dataclass(frozen=True)
class Matrix:
    """Products with one matrix, measured in turns: seconds by "8 rows" and so on, of numpy by
    "numpy, 192 rows", of reading as many bytes as one row does by "reading"."""

    n: int
    k: int
    schedules: dict[int, str]
    bytes: dict[int, int]
    turns: Turns

    def seconds(self, rows: int) -> float:
        return self.turns.value(product(rows))

    @property
    def share_of_reading(self) -> float:
        """Of the device's rate of reading memory, what one row reaches."""
        return self.turns.ratio("reading", product(1))

    def times_numpy(self, rows: int) -> float:
        return self.turns.ratio(numpy(rows), product(rows))

    @property
    def eight_to_one(self) -> float:
        return self.turns.ratio(product(8), product(1))

    @property
    def row_of_762(self) -> float:
        """The time of a row among 762, in times of one among 192."""
        return self.turns.ratio(product(762), product(192)) * 192 / 762

    def lines(self) -> Iterator[list[object]]:
        for rows in ROWS:
            seconds, others = self.seconds(rows), self.turns.others(product(rows))
            yield [
                f"{rows} x {self.n} x {self.k}",
                self.schedules[rows],
                seconds * 1e3,
                self.bytes[rows] / seconds / 1e9,
                f"{self.share_of_reading:.0%}" if rows == 1 else None,
                2 * rows * self.n * self.k / seconds / 1e9,
                self.times_numpy(rows) if rows > 8 else None,
                None if others is None else f"{others:.1%}",
            ]


COLUMNS = ["rows x N x K", "schedule", "ms", "GB/s", "of reading", "GOPS", "x numpy f32", "others"]


def product(rows: int) -> str:
    return f"{rows} rows"


def numpy(rows: int) -> str:
    return f"numpy, {rows} rows"


def matrices(device: Device, rounds: int) -> Iterator[Matrix]:
    for n, k in MATRICES:
        yield measured(device, n, k, rounds)


def measured(device: Device, n: int, k: int, rounds: int) -> Matrix:
    samples: dict[str, Callable[[], float]] = {}
    schedules, sizes = {}, {}
    for rows in ROWS:
        schedules[rows], sizes[rows], samples[product(rows)] = fastest(device, rows, n, k)
    read = samplers(device, FOOTPRINT[1], ["read"])["read"]
    samples["reading"] = lambda: sizes[1] / read()
    samples |= {numpy(rows): partial(numpy_seconds, rows, n, k) for rows in ROWS if rows > 8}
    return Matrix(n, k, schedules, sizes, in_turns(samples, rounds))


def fastest(device: Device, rows: int, n: int, k: int) -> tuple[str, int, Callable[[], float]]:
    """The fastest schedule's name, the bytes of a launch, and what measures its seconds."""
    found = []
    for config in SCHEDULES[rows]:
        sample, size = sampler(device, rows, n, k, config)
        found.append((quietly(sample).value, str(config), size, sample))
    _, name, size, sample = min(found, key=lambda each: each[0])
    return name, size, sample


def sampler(
    device: Device, rows: int, n: int, k: int, config: Config
) -> tuple[Callable[[], float], int]:
    """What measures the median seconds of a launch, and the bytes that a launch moves."""
    definition = find("matmul_q8").definition
    request = Request(definition, {"M": rows, "N": n, "K": k}, config=config)
    made = request.arguments()
    size = arguments.traffic(request.kernel(), made)
    launch = launcher(request, device, made, -(-FOOTPRINT[rows] // size))
    return lambda: median(turn(launch)), size


_NUMPY = """
import sys, time, numpy as np
m, n, k = map(int, sys.argv[1:])
a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
times = []
for _ in range(9):
    began = time.perf_counter()
    a @ b
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""


def numpy_seconds(m: int, n: int, k: int) -> float:
    """The median of nine float32 products in a process of its own.

    Settings that choose a BLAS kernel for the sake of equal bits would slow it down.
    """
    environ = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    command = [sys.executable, "-c", _NUMPY, str(m), str(n), str(k)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return float(done.stdout)
