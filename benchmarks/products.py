"""The q8 matrix product: one row against reading memory, many rows against numpy's float32."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.quiet import Sample, quietly
from ferro.catalogue import find
from ferro.codegen.program import Config
from ferro.measure import Request, Speed, bench
from ferro.runtime.device import Device
from ferro.runtime.limits import measure

MATRICES = ((9216, 1024), (1024, 4608))
ROWS = (1, 8, 192, 762)
# Schedules worth trying for so many rows; the fastest one counts.
SCHEDULES = {
    1: ({"BM": 1, "BN": 16}, {"BM": 1, "BN": 32}, {"BM": 1, "BN": 64}),
    8: ({"BM": 8, "BN": 16}, {"BM": 4, "BN": 32}, {"BM": 8, "BN": 32}),
    192: ({"BM": 4, "BN": 64}, {"BM": 8, "BN": 16}, {"BM": 8, "BN": 32}),
    762: ({"BM": 4, "BN": 64}, {"BM": 8, "BN": 16}, {"BM": 8, "BN": 32}),
}
# Few rows read every weight once a launch, so caches must not hold any: cycle through a lot.
FOOTPRINT = {1: 512 << 20, 8: 512 << 20, 192: 64 << 20, 762: 64 << 20}


@dataclass(frozen=True)
class Product:
    """The fastest schedule of one shape; ``read`` is the device's read rate in the same run,
    ``others`` the largest share of the processors that others took during a sample."""

    rows: int
    n: int
    k: int
    speed: Speed
    read: float
    numpy_seconds: float | None
    others: float

    @property
    def line(self) -> list[object]:
        reached = self.speed.bytes / self.speed.median
        against = self.numpy_seconds / self.speed.median if self.numpy_seconds else None
        return [
            f"{self.rows} x {self.n} x {self.k}",
            self.speed.config,
            self.speed.median * 1e3,
            reached / 1e9,
            f"{reached / self.read:.0%}" if self.rows == 1 else None,
            2 * self.rows * self.n * self.k / self.speed.median / 1e9,
            against,
            f"{self.others:.1%}",
        ]


COLUMNS = ["rows x N x K", "schedule", "ms", "GB/s", "of reading", "GOPS", "x numpy f32", "others"]


def products(device: Device, seconds: float) -> Iterator[Product]:
    for n, k in MATRICES:
        for rows in ROWS:
            yield product(device, rows, n, k, seconds)


def product(device: Device, rows: int, n: int, k: int, seconds: float) -> Product:
    """Measures one shape; readings of memory and of numpy lie around it, the better one counts."""
    definition = find("matmul_q8").definition
    sizes = {"M": rows, "N": n, "K": k}
    requests = [Request(definition, sizes, config=Config(s)) for s in SCHEDULES[rows]]

    def reading() -> Sample[float]:
        return quietly(lambda: measure(device).read)

    def numpy() -> list[Sample[float]]:
        return [quietly(lambda: numpy_seconds(rows, n, k))] if rows > 8 else []

    reads, numpys = [reading()], numpy()
    speeds = [
        quietly(partial(bench, request, device, seconds, FOOTPRINT[rows])) for request in requests
    ]
    reads.append(reading())
    numpys += numpy()
    best = min(speeds, key=lambda sample: sample.result.median)
    return Product(
        rows,
        n,
        k,
        best.result,
        max(sample.result for sample in reads),
        min((sample.result for sample in numpys), default=None),
        max(best.others, *(s.others for s in reads), *(s.others for s in numpys)),
    )


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
