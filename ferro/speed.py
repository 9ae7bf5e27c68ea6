"""How fast a kernel is beside what its device can do, both measured in turns.

A round takes a sample of each limit and then of the kernel, so that what slows the machine slows
both: a share is the median over rounds of the ratio within one. Rounds in which other programs took
more than 5% of the processors are dropped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from ferro import arguments, work
from ferro.arguments import Arguments
from ferro.dsl.launch import bind
from ferro.measure import INTERPRETER, Request, target_name, uploaded
from ferro.neighbours import Watch, quiet
from ferro.runtime.device import Device
from ferro.runtime.limits import Sampler, samplers

MOST_COPIES = 256
LEAST_ROUNDS = 3
PATIENCE = 3.0  # on a busy machine, quiet rounds are waited for so many times as long
TURN = 0.1  # seconds of launches in one round


@dataclass(frozen=True)
class Round:
    """Seconds of each launch, what each limit gave (units a second), and the share of the
    processors that others took meanwhile (None if it is not known)."""

    times: list[float]
    limits: Mapping[str, float]
    others: float | None


@dataclass(frozen=True)
class Speed:
    """Times of one launch in seconds, over ``launches`` of them that cycle through ``copies``
    sets of arguments (so that caches hold no set from the time before).

    ``limits`` (units a second) and ``shares`` (of the limit, within one round) go by kind: "read"
    for bytes, "dot" for int8 and "f32" for float operations. ``dropped`` rounds were disturbed and
    do not count; where too few were not, the quietest count, and ``others`` is above 5%.
    """

    kernel: str
    device: str
    sizes: dict[str, int]
    config: str
    target: str
    launches: int
    copies: int
    median: float
    best: float
    bytes: int
    int8_operations: int | None
    f32_operations: int | None
    rates: dict[str, float]
    limits: dict[str, float]
    shares: dict[str, float]
    rounds: int
    dropped: int
    others: float | None


def bench(
    request: Request, device: Device, seconds: float = 2.0, footprint: int = 512 << 20
) -> Speed:
    """Measures launches for about ``seconds`` over at least ``footprint`` bytes of arguments (256
    sets at most), beside the device's own limits; memory is read over as many bytes.

    Raises CompileError, ArgumentsError, DeviceError.
    """
    made = request.arguments()
    request = request.settled(device, made)
    kernel = request.kernel()
    size = arguments.traffic(kernel, made)
    binding = bind(kernel, made)
    counted = {
        "read": size,
        "dot": work.operations(kernel, binding, ("dot_i8",)),
        "f32": work.operations(kernel, binding, ("dot",)),
    }
    amounts = {kind: amount for kind, amount in counted.items() if amount}
    copies = min(max(1, math.ceil(footprint / max(size, 1))), MOST_COPIES)
    if device.info.kind == INTERPRETER:
        copies = 1
    launch = launcher(request, device, made, copies)
    beside = samplers(device, min(footprint, copies * size), amounts)
    every = rounds(launch, beside, seconds)
    kept = undisturbed(every)
    times = [taken for one in kept for taken in one.times]
    middle = median(times)
    return Speed(
        kernel=kernel.name,
        device=str(device.info),
        sizes=arguments.dimensions(kernel, request.sizes),
        config=request.config_name(),
        target=target_name(request, device),
        launches=len(times),
        copies=copies,
        median=middle,
        best=min(times),
        bytes=size,
        int8_operations=counted["dot"],
        f32_operations=counted["f32"],
        rates={kind: amount / middle for kind, amount in amounts.items()},
        limits={kind: median(one.limits[kind] for one in kept) for kind in beside},
        shares={kind: share(kept, kind, amounts[kind]) for kind in beside},
        rounds=len(kept),
        dropped=len(every) - len(kept),
        others=max((o for one in kept if (o := one.others) is not None), default=None),
    )


def share(kept: list[Round], kind: str, amount: float) -> float:
    """What a launch of ``amount`` bytes or operations reaches of a limit of the same round."""
    return median(amount / median(one.times) / one.limits[kind] for one in kept)


def rounds(
    launch: Callable[[], list[float]], beside: Mapping[str, Sampler], seconds: float
) -> list[Round]:
    """Rounds for about ``seconds``; on a busy machine at least three, and up to three times as long
    until as many were quiet."""
    began = time.perf_counter()
    taken: list[Round] = []
    while True:
        watch = Watch()
        limits = {kind: sample() for kind, sample in beside.items()}
        times = turn(launch)
        taken.append(Round(times, limits, watch.others()))
        passed = time.perf_counter() - began
        calm = sum(quiet(one.others) for one in taken)
        if passed > seconds and calm >= min(LEAST_ROUNDS, len(taken)):
            return taken
        if passed > PATIENCE * seconds and len(taken) >= LEAST_ROUNDS:
            return taken


def undisturbed(taken: list[Round]) -> list[Round]:
    """The quiet rounds; if those are too few, the quietest three."""
    found = [one for one in taken if quiet(one.others)]
    if len(found) >= min(LEAST_ROUNDS, len(taken)):
        return found
    return sorted(taken, key=lambda one: one.others or 0.0)[:LEAST_ROUNDS]


def turn(launch: Callable[[], list[float]]) -> list[float]:
    """The seconds of each launch of about a tenth of a second."""
    until = time.perf_counter() + TURN
    times = launch()
    while time.perf_counter() < until:
        times += launch()
    return times


def launcher(
    request: Request, device: Device, made: Arguments, copies: int
) -> Callable[[], list[float]]:
    """What launches once over every set of arguments and gives the seconds of each launch."""
    if device.info.kind == INTERPRETER:
        return lambda: [_host_seconds(request, device, made)]
    plans = []
    for _ in range(copies):
        given = uploaded(request, device, made)
        with device.plan() as plan:
            request.run(device, given)
        plans.append(plan)

    def launch() -> list[float]:
        with device.profile() as profiler:
            for plan in plans:
                plan.run()
        return _by_launch([timing.seconds for timing in profiler.timings()], len(plans))

    launch()  # memory is touched, clocks are up
    return launch


def _host_seconds(request: Request, device: Device, made: Arguments) -> float:
    started = time.perf_counter()
    request.run(device, made)
    return time.perf_counter() - started


def _by_launch(commands: list[float], launches: int) -> list[float]:
    """Seconds of each launch, which is as many commands as any other."""
    each = len(commands) // launches
    return [sum(commands[i : i + each]) for i in range(0, each * launches, each)]
