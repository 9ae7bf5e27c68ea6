"""Runs the main kernels on a device and in the interpreter, and compares every bit."""

from __future__ import annotations

import argparse
from typing import Any

from ferro.commands import options
from ferro.report import Progress, emit, table, to_json

# Shapes of a small language model: one token, a few streams, a prompt.
LAUNCHES: tuple[tuple[str, dict[str, int], dict[str, int]], ...] = (
    ("matmul_q8", {"M": 1, "N": 9216, "K": 1024}, {"BM": 1}),
    ("matmul_q8", {"M": 8, "N": 1024, "K": 4608}, {"BM": 8, "BN": 32}),
    ("rmsnorm", {"M": 192, "K": 1024}, {}),
    ("softmax", {"M": 192, "N": 1921}, {}),
)


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.epilog = "exit code: 0 where every bit is equal, else 1"


def run(args: argparse.Namespace) -> int:
    from ferro.catalogue import find
    from ferro.codegen.program import Config
    from ferro.measure import Comparison, Request, compare
    from ferro.runtime.devices import open_device

    results: list[Comparison] = []
    with options.open_device(args) as device, open_device("interpreter") as reference:
        with Progress(len(LAUNCHES), "demo") as progress:
            for name, dimensions, schedule in LAUNCHES:
                config = Config(schedule) if schedule else None
                request = Request(find(name).definition, sizes=dimensions, config=config)
                results.append(compare(request, device, reference))
                progress.step(name)
        described = str(device.info)
    equal = all(result.equal for result in results)
    if args.json:
        launches = [{**vars(r), "equal": r.equal} for r in results]
        emit(to_json({"device": described, "equal": equal, "launches": launches}))
        return 0 if equal else 1
    emit(f"device {described}")
    emit(table(COLUMNS, [row(result) for result in results]))
    emit("every bit equals the interpreter's" if equal else "BITS DIFFER from the interpreter's")
    return 0 if equal else 1


COLUMNS = ["kernel", "sizes", "target", "equal bits", "ms", "GB/s", "interpreter ms"]


def row(result: Any) -> list[object]:
    sizes = " ".join(f"{name}={value}" for name, value in result.sizes.items())
    seconds, rate = result.seconds * 1e3, result.gigabytes_per_second
    interpreted = result.interpreter_seconds * 1e3
    return [result.kernel, sizes, result.target, result.equal, seconds, rate, interpreted]
