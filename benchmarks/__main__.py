"""Runs the benchmarks on some devices: `python -m benchmarks [--device NAME]... [--seconds S]`."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator
from pathlib import Path

from benchmarks import launches, products
from ferro.report import table
from ferro.runtime.device import Device
from ferro.runtime.devices import open_device
from ferro.runtime.listing import host_processor

RESULTS = Path(__file__).with_name("RESULTS.md")


def report(name: str, seconds: float) -> Iterator[str]:
    """The sections of one device's report."""
    with open_device(name) as device:
        yield f"### {device.info}\n"
        yield block(products_table(device, seconds))
        costs = [[what, cost] for what, cost in launches.launch_costs(device)]
        yield block(table(["cost on the host", "us"], costs))
        times = list(launches.generation_times(device))
        slowest, longest = max(times, key=lambda item: item[1])
        yield f"Code generation: slowest of {len(times)} kernels {slowest}, {longest:.1f} ms.\n"
    builds = [[what, time] for what, time in launches.build_times(name)]
    yield block(table(["builds", "s"], builds))


def products_table(device: Device, seconds: float) -> str:
    found = list(products.products(device, seconds))
    rows = [product.line for product in found]
    by_rows = {(p.rows, p.n): p.speed.median for p in found}
    notes = [
        f"N = {n}: 8 rows take {by_rows[8, n] / by_rows[1, n]:.2f} times 1 row; a row of 762 takes"
        f" {by_rows[762, n] / 762 / (by_rows[192, n] / 192):.2f} times a row of 192"
        for n, _ in products.MATRICES
    ]
    return "\n".join([table(products.COLUMNS, rows), *notes])


def block(text: str) -> str:
    return f"```\n{text}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", action="append", help="default: intel and pocl")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    args = parser.parse_args()
    sections = [f"## {datetime.date.today()}, {host_processor().split('avx')[0].strip()}\n"]
    print(sections[0])
    for name in args.device or ["intel", "pocl"]:
        for section in report(name, args.seconds):
            print(section, flush=True)
            sections.append(section)
    if args.save:
        with RESULTS.open("a") as file:
            file.write("\n" + "\n".join(sections))


if __name__ == "__main__":
    main()
