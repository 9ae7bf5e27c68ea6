"""What a launch costs the host, and how long kernels take to generate, build and load."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

from ferro import codegen
from ferro.catalogue import Entry, find, shipped
from ferro.codegen.program import Config
from ferro.dsl import ir
from ferro.measure import Request, uploaded
from ferro.runtime.device import Device
from ferro.runtime.devices import open_device
from ferro.runtime.opencl import OpenCLDevice

ROUNDS, CALLS = 7, 200
# Constexprs without a default need a value.
CONSTANTS = {"D": 64, "C": 32, "L": 3}


def fastest(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def launch_costs(device: Device) -> Iterator[tuple[str, float]]:
    """Microseconds of Python time for one launch of a tiny kernel with six arguments."""
    request = Request(find("rmsnorm").definition, {"M": 1, "K": 32})
    given = uploaded(request, device, request.arguments())
    request.run(device, given)
    device.finish()

    def calls() -> None:
        for _ in range(CALLS):
            request.run(device, given)

    with device.plan() as plan:
        calls()
    for name, work in (("friendly call", calls), ("launch through a plan", plan.run)):
        seconds = []
        for _ in range(ROUNDS):
            seconds.append(fastest(work, 1))
            device.finish()
        yield name, min(seconds) / CALLS * 1e6


def specialised(entry: Entry) -> ir.Kernel:
    needed = {n: v for n, v in CONSTANTS.items() if n in entry.definition.parameters}
    return Request(entry.definition, constants=needed).kernel()


def generation_times(device: Device) -> Iterator[tuple[str, float]]:
    """Milliseconds from IR to OpenCL C for each shipped kernel."""
    for entry in shipped():
        kernel = specialised(entry)
        seconds = fastest(partial(codegen.generate, kernel, device.target, Config()), 3)
        yield entry.name, seconds * 1e3


def build_times(name: str) -> Iterator[tuple[str, float]]:
    """Seconds to build every shipped kernel cold, and to load them again from the cache."""
    before = os.environ.get("FERRO_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        probed = open_device(name).target  # the probes' findings are no part of a build
        os.environ["FERRO_CACHE_DIR"] = folder
        try:
            for label in ("all shipped kernels built cold", "loaded warm"):
                with open_device(name) as device:
                    assert isinstance(device, OpenCLDevice)
                    kernels = [specialised(entry) for entry in shipped()]
                    began = time.perf_counter()
                    for kernel in kernels:
                        device.built(kernel, probed, Config())
                    yield label, time.perf_counter() - began
        finally:
            os.environ.pop("FERRO_CACHE_DIR")
            if before is not None:
                os.environ["FERRO_CACHE_DIR"] = before
