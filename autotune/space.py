"""The configs that a kernel could have on a target: what it declares, and what is general.

Declared are its schedule constexprs with their choices. General are lanes, lane axis, split, dot,
prefetch and group, each only where it can make a difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from autotune.problem import Problem
from ferro.codegen.program import Config, Target
from ferro.codegen.split import Bounds
from ferro.dsl import extents, ir
from ferro.runtime.device import Device

# A device with this many programs a compute unit has enough to do without splitting them.
BUSY = 4
SPLITS = (2, 4, 8, 16)
GROUP = 8


def space(problem: Problem, device: Device) -> list[Config]:
    """Every config, those with little work a program first; the default is among them."""
    kernel = problem.kernel(problem.default)
    general = list(
        itertools.product(
            lanes(kernel, problem.target),
            lane_axes(kernel, problem.target),
            splits(kernel, problem, device),
            dots(kernel, problem.target),
            prefetches(kernel, problem.target),
            groups(kernel, problem),
        )
    )
    every = (Config(constants, *rest) for constants in schedules(problem) for rest in general)
    # a walk is split where programs are few, they are grouped where they are many
    return sorted((c for c in every if c.split == 1 or not c.group), key=work)


def work(config: Config) -> tuple[float, str]:
    """How much one program does, as far as the config tells."""
    return (math.prod(config.constants.values()) / config.split, str(config))


def schedules(problem: Problem) -> Iterator[dict[str, int]]:
    declared = problem.request.definition.schedule
    for values in itertools.product(*(p.choices for p in declared.values())):
        yield dict(zip(declared, map(int, values), strict=True))


def lanes(kernel: ir.Kernel, target: Target) -> Sequence[int | None]:
    """Other lane counts. Weights are packed for the target's, and some dots need it."""
    if has_weights(kernel) or (target.kind == "simd" and has_dot(kernel)):
        return (None,)
    return (None, target.lanes // 2) if target.kind == "simd" else (None, 8, 32)


def lane_axes(kernel: ir.Kernel, target: Target) -> Sequence[tuple[str, ...]]:
    """No wish, and each axis that has a name."""
    named = {op.attrs.get("axis", "") for op in ir.walk(kernel.body) if op.name == "arange"} - {""}
    return ((), *((name,) for name in sorted(named))) if len(named) > 1 else ((),)


def splits(kernel: ir.Kernel, problem: Problem, device: Device) -> Sequence[int]:
    """More work-groups for one ordered walk, where there are few programs and several chunks."""
    units = int(device.info.capabilities.get("compute units", 1))
    if problem.programs(problem.default) >= BUSY * units:
        return (1,)
    return (1, *(n for n in SPLITS if n <= chunks(kernel, problem)))


def chunks(kernel: ir.Kernel, problem: Problem) -> int:
    """The most chunks of the kernel's first walk; 1 where it has none or they cannot be told."""
    place = next((i for i, op in enumerate(kernel.body.ops) if op.name == "walk"), None)
    if place is None:
        return 1
    found = kernel.body.ops[place]
    defined = {result: op for op in kernel.body.ops[:place] for result in op.results}
    longest = Bounds(kernel, defined).upper(found.args[0])
    if longest is None:
        return 1
    sizes = {n: v for n, v in problem.binding(problem.default).scalars.items() if type(v) is int}
    return -(-extents.evaluate(longest, sizes) // int(found.attrs["size"]))


def dots(kernel: ir.Kernel, target: Target) -> Sequence[str | None]:
    """Instructions that the hardware has can be slower than plain code, where weights allow it."""
    return (None, "emulated") if target.dot == "dp4a" and has_dot(kernel) else (None,)


def prefetches(kernel: ir.Kernel, target: Target) -> Sequence[bool]:
    """Weights that many rows share are in a cache: asking for them ahead gives nothing."""
    return (True, False) if "prefetch" in target.features and has_weights(kernel) else (True,)


def groups(kernel: ir.Kernel, problem: Problem) -> Sequence[int]:
    """Rows of programs that share a tile of weights while it is in a cache."""
    grid = problem.binding(problem.default).grid
    return (0, GROUP) if has_weights(kernel) and len(kernel.grid) == 2 and grid[1] > 1 else (0,)


def has_weights(kernel: ir.Kernel) -> bool:
    return any(isinstance(b, ir.Quantised) and b.format != "a8" for b in kernel.buffers)


def has_dot(kernel: ir.Kernel) -> bool:
    return any(op.name == "dot_i8" for op in ir.walk(kernel.body))
