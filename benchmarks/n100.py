"""PREDICTIONS of Ferro's speed on an N100's GPU, from its compiler's assembly: no measurements.

    python -m benchmarks.n100 configs        # which schedule of a product is predicted fastest
    python -m benchmarks.n100 published      # the model on another engine's published rows
    python -m benchmarks.n100 model FILE     # tokens a second of a model, kernel by kernel

A launch takes the longest of: EU cycles of its instructions (the loop with dp4a as often as the
sizes ask for), bytes from memory, bytes through the L3; and the time to launch it. What overlaps
badly is not modelled; one published row gives the share that is reached (``efficiency``).
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks import n100_device as device
from ferro import codegen
from ferro.catalogue import find
from ferro.codegen.errors import ConfigError
from ferro.codegen.gen12 import Statistics, statistics
from ferro.codegen.program import Config, Program, Target
from ferro.measure import Request
from ferro.profiling import Launch
from ferro.report import emit, table
from ferro.runtime.configs import best, kernel_key, shipped
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.trials import Place

VARIANTS = {
    "block-read": Target("simt", 16, "dp4a", features=frozenset({"block_read", "vload_half"})),
    "plain": Target("simt", 16, "dp4a", features=frozenset({"vload_half"})),
}
PRODUCTS = ("matmul_q8", "gated_q8", "gated_q8_a8", "matmul_q4", "gated_q4_a8")
CHUNK = 512  # k of one chunk
BLOCK_COLUMNS = 32  # of a tile that writes int8 rows: a block
ROWS = (1, 2, 4, 8, 16)
COLUMNS = (16, 32)
SHAPES = [(m, n, k) for n, k in ((9216, 1024), (1024, 4608)) for m in (1, 4, 8, 192, 762)]
N100 = DeviceInfo(0, "intel-gpu", "Intel(R) UHD Graphics [ADL-N]", "", "", "", "gpu")
NOTE = "PREDICTED from the assembly of ocloc for adl-n, not measured"


@dataclass(frozen=True)
class Prediction:
    """Seconds of one launch, part by part; ``share`` is of dp4a in the cycles of the loop."""

    eus: float
    memory: float
    l3: float
    share: float | None = None
    spills: bool = False

    @property
    def seconds(self) -> float:
        """Without a calibration."""
        return max(self.eus, self.memory, self.l3) + device.LAUNCH

    def calibrated(self, efficiency: float) -> float:
        return (self.seconds - device.LAUNCH) / efficiency + device.LAUNCH


def efficiency() -> float:
    """The share of the limits that is reached, from the one row that is calibrated on."""
    row = device.CALIBRATION
    return own(row) / (row.tokens / row.rate - row.launches * device.LAUNCH)


def own(row: device.Published) -> float:
    """Seconds of the other engine's pass at its limits, without launching."""
    dots = row.tokens * row.operations / (device.PEAK_DOT * device.TILE_SHARE)
    return max(row.bytes / device.BANDWIDTH, dots)


def published() -> Iterator[tuple[device.Published, float]]:
    """Each published row with the rate that the model gives for that engine's own traffic."""
    reached = efficiency()
    for row in device.PUBLISHED:
        yield row, row.tokens / (own(row) / reached + row.launches * device.LAUNCH)


# ----------------------------------------------------------------------------------- one product


def product(name: str, config: Config, sizes: Mapping[str, int], variant: str) -> Prediction:
    """A product of [M, K] rows with [N, K] weights. Raises ConfigError, Gen12Error."""
    read = compiled(name, config, variant)
    loop = read.dot_loop
    assert loop is not None, f"{name} has no loop with dp4a"
    m, n, k = sizes["M"], sizes["N"], sizes["K"]
    bm, bn = config.constants["BM"], config.constants.get("BN", BLOCK_COLUMNS)
    tiles = math.ceil(m / bm) * math.ceil(n / bn)
    eus = tiles * cycles(read, bm, bn, k, weights(name)) / (device.EUS * device.CLOCK)
    width = k * (34 / 32 if "q8" in name else 20 / 32)  # bytes of a row of weights
    through = tiles * (weights(name) * bn * width + bm * k * 40 / 32)
    once = weights(name) * n * width + m * k * 40 / 32 + 4 * m * n
    spills = read.spill + read.private > 0
    memory, l3 = once / device.BANDWIDTH, through / (device.L3_BYTES * device.CLOCK)
    return Prediction(eus, memory, l3, loop.dp4a_share, spills)


def weights(name: str) -> int:
    """How many matrices it multiplies with."""
    return 2 if name.startswith("gated") else 1


def cycles(read: Statistics, bm: int, bn: int, k: int, matrices: int) -> float:
    """EU cycles of one tile: the loop with dp4a by the dots that it has to make, loops around it by
    chunk, the rest once."""
    loop = read.dot_loop
    assert loop is not None
    dots = matrices * bm * 8 * math.ceil(bn / read.simd) * math.ceil(k / 32)
    turns = dots / loop.dp4a
    around = sum(
        outer.cycles - loop.cycles for outer in read.loops if outer.depth < loop.depth
    ) * math.ceil(k / CHUNK)
    inside = sum(one.cycles for one in read.loops if one.depth == 1)
    return turns * loop.cycles + around + max(0, read.cycles - inside)


@lru_cache(maxsize=None)
def _statistics(source: str, options: tuple[str, ...]) -> Statistics:
    return statistics(source, options)[0]


def compiled(name: str, config: Config, variant: str) -> Statistics:
    """What the compiler makes of a product without optional buffers."""
    program = generated(name, config, variant)
    return _statistics(program.source, program.options)


def generated(name: str, config: Config, variant: str) -> Program:
    kernel = Request(find(name).definition, constants=meaning(name), config=config).kernel()
    return codegen.generate(kernel, VARIANTS[variant], config)


def meaning(name: str) -> dict[str, Any]:
    return {"ACT": "silu"} if name.startswith("gated") else {}


# ------------------------------------------------------------------------------- configs, models


def candidates(name: str) -> Iterator[Config]:
    schedule = find(name).definition.schedule
    rows = [int(n) for n in schedule["BM"].choices if n in ROWS]
    if "BN" not in schedule:
        yield from (Config({"BM": bm}) for bm in rows)
        return
    columns = [int(n) for n in schedule["BN"].choices if n in COLUMNS]
    yield from (Config({"BM": bm, "BN": bn}) for bm in rows for bn in columns)


def ranked(name: str, sizes: Mapping[str, int], variant: str) -> list[tuple[Config, Prediction]]:
    """The schedules that keep their values in registers, the one predicted fastest first."""
    found = []
    for config in candidates(name):
        try:
            made = product(name, config, sizes, variant)
        except ConfigError:
            continue
        if not made.spills:
            found.append((config, made))
    return sorted(found, key=lambda pair: pair[1].seconds)


def chosen(name: str, sizes: Mapping[str, int], variant: str) -> Config | None:
    """The shipped config for this device."""
    definition, target = find(name).definition, VARIANTS[variant]
    place = Place.of(kernel_key(definition), target.name, sizes)
    return best([one for one in shipped() if one.serves(N100, target) and one.covers(place)])


def predicted(launch: Launch, variant: str) -> Prediction:
    """Any launch of a model: products by their assembly, others by bytes and peak arithmetic."""
    if launch.kernel in PRODUCTS and (config := chosen(launch.kernel, launch.sizes, variant)):
        if "BM" in config.constants:
            return product(launch.kernel, config, launch.sizes, variant)
    f32 = (launch.f32_operations or 0) / device.PEAK_F32
    dots = (launch.int8_operations or 0) / (device.PEAK_DOT * device.TILE_SHARE)
    return Prediction(f32 + dots, launch.bytes / device.BANDWIDTH, 0.0)


def show_configs() -> None:
    emit(NOTE)
    for name in PRODUCTS:
        for variant in VARIANTS:
            show_product(name, variant)


def show_product(name: str, variant: str) -> None:
    rows = []
    for m, n, k in SHAPES:
        sizes = {"M": m, "N": n, "K": k}
        (first, made), (second, behind) = ranked(name, sizes, variant)[:2]
        share = f"{made.share:.0%}" if made.share else None
        times = [f"{1e3 * one.seconds:.2f}" for one in (made, behind)]
        kept = chosen(name, sizes, variant)
        rows.append(
            [f"{m} x {n} x {k}", first, times[0], share, limit(made), second, times[1], kept]
        )
    columns = ["rows x N x K", "fastest", "ms", "dp4a", "bound", "next", "ms", "shipped"]
    emit(f"\n{name}, {variant}\n{table(columns, rows)}")


def limit(made: Prediction) -> str:
    parts = {"EUs": made.eus, "memory": made.memory, "L3": made.l3}
    return max(parts, key=lambda name: parts[name])


def show_published() -> None:
    told = (
        f"calibrated on {device.CALIBRATION.what} alone, {efficiency():.0%} of the limits reached"
    )
    emit(f"the model on another engine; {told}")
    rows = [
        [row.what, f"{row.rate:g}", f"{rate:.1f}", f"{rate / row.rate - 1:+.0%}"]
        for row, rate in published()
    ]
    emit(table(["row", "published tok/s", "model tok/s", "error"], rows))


def show_model(path: Path, name: str, prefill: int) -> None:
    from ferro import profiling
    from ferro.models.language_model import LanguageModel
    from ferro.runtime import open_device

    with open_device(name) as opened, LanguageModel.open(path, opened, weights="q8") as model:
        phases = {
            f"prefill {prefill}": (profiling.launches(model, prefill, 0), prefill),
            "decode": (profiling.launches(model, 1, 1), 1),
        }
    emit(f"{path.name}: {NOTE}; {efficiency():.0%} of the limits are taken to be reached")
    for variant in VARIANTS:
        for what, (launches, tokens) in phases.items():
            emit("\n" + shown(f"{what}, {variant}", launches, tokens, variant))


def shown(what: str, launches: Sequence[Launch], tokens: int, variant: str) -> str:
    """A pass kernel by kernel."""
    reached, totals = efficiency(), defaultdict[str, list[float]](list)
    for launch in launches:
        made = predicted(launch, variant)
        totals[f"{launch.kernel} ({limit(made)})"].append(made.calibrated(reached))
    seconds = sum(map(sum, totals.values()))
    order = sorted(totals.items(), key=lambda item: -sum(item[1]))
    rows = [
        [name, len(taken), f"{1e3 * sum(taken):.2f}", f"{sum(taken) / seconds:.0%}"]
        for name, taken in order
    ]
    heading = f"{what}: PREDICTED {tokens / seconds:.1f} tok/s ({1e3 * seconds:.1f} ms)"
    return f"{heading}\n{table(['kernel (bound)', 'launches', 'ms', 'of pass'], rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("configs")
    actions.add_parser("published")
    model = actions.add_parser("model")
    model.add_argument("file", type=Path)
    model.add_argument("--device", default="intel", help="where the launches are looked at")
    model.add_argument("--prefill", type=int, default=512)
    args = parser.parse_args()
    if args.action == "configs":
        show_configs()
    elif args.action == "published":
        show_published()
    else:
        show_model(args.file, args.device, args.prefill)


if __name__ == "__main__":
    main()
