"""Runs the benchmarks on some devices, and says which targets are met.

The exit code tells nothing of speed. `benchmarks/RESULTS.md` is written by hand.
"""

from __future__ import annotations

import argparse
import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import launches, plot, products, targets
from benchmarks.products import Matrix
from benchmarks.targets import Target
from ferro.neighbours import quiet
from ferro.report import emit, note, table, to_json
from ferro.runtime.device import Device
from ferro.runtime.devices import open_device
from ferro.runtime.listing import host_processor


def measured(name: str, rounds: int) -> tuple[dict[str, Any], list[Target]]:
    """What a run on one device found, as JSON has it, and its targets. Prints tables meanwhile."""
    with open_device(name) as device:
        emit(f"### {device.info}\n")
        found = list(products.matrices(device, rounds))
        rows = [line for matrix in found for line in matrix.lines()]
        emit(table(products.COLUMNS, rows))
        host = host_costs(device)
        alias, described = device.info.alias, str(device.info)
    host |= dict(launches.build_times(name))
    wanted = [*targets.of_products(alias, found), *targets.of_host(host)]
    emit("\n" + table(targets.COLUMNS, [target.line() for target in wanted]) + "\n")
    others = max((o for m in found if (o := m.turns.others()) is not None), default=None)
    if not quiet(others):
        note(f"{alias}: other programs took up to {others:.0%} of the processors: measure again")
    record = {
        "device": described,
        "products": [as_json(matrix) for matrix in found],
        "host": host,
        "others": others,
        "targets": [{**asdict(t), "met": t.met} for t in wanted],
    }
    return record, wanted


def host_costs(device: Device) -> dict[str, float]:
    times = [milliseconds for _, milliseconds in launches.generation_times(device)]
    return {**dict(launches.launch_costs(device)), "slowest code generation": max(times) / 1e3}


def as_json(matrix: Matrix) -> dict[str, Any]:
    named = [dict(zip(products.COLUMNS, line, strict=True)) for line in matrix.lines()]
    return {"N": matrix.n, "K": matrix.k, "rows": named, "rounds": matrix.turns.rounds}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", action="append", help="default: intel and pocl")
    parser.add_argument("--rounds", type=int, default=5, help="of samples in turns (default 5)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything measured")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write a PNG (extra `plot`)")
    args = parser.parse_args()
    title = f"{datetime.date.today()}, {host_processor().split('avx')[0].strip()}"
    emit(f"## {title}\n")
    records, wanted = [], {}
    for name in args.device or ["intel", "pocl"]:
        record, wanted[name] = measured(name, args.rounds)
        records.append(record)
    if args.json:
        args.json.write_text(to_json({"run": title, "devices": records}))
        note(f"wrote {args.json}")
    if args.plot:
        try:
            plot.draw(wanted, args.plot, title)
        except ImportError:
            parser.exit(1, 'no picture: matplotlib is missing (pip install "ferro[plot]")\n')
        note(f"wrote {args.plot}")


if __name__ == "__main__":
    main()
