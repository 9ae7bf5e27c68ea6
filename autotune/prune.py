"""Configs that are not worth a compiler's time, known from the kernel and the device alone."""

from __future__ import annotations

from dataclasses import replace

from autotune.problem import Problem
from ferro.codegen.footprint import local_memory, registers
from ferro.codegen.program import Config, Program
from ferro.dsl import ir
from ferro.dsl.diagnostics import CompileError
from ferro.runtime.device import Device

# Vector registers of a CPU by lanes of 32 bits; values of a work-item on a GPU at 16 lanes.
VECTORS = {4: 16, 8: 16, 16: 32}
VALUES = 128
# Loops that carry more than this multiple of the registers spill in every turn.
SPILL = 2


def prune(config: Config, problem: Problem, device: Device) -> str:
    """Why ``config`` cannot be the fastest (or cannot run) for ``problem``, as "kind: details"; ""
    if it may be.

    Compiles nothing: looks at tiles against the problem, work-group size and registers.
    """
    try:
        kernel = problem.kernel(config)
    except CompileError as error:
        return f"not possible: {error.diagnostics[0].message}"
    return (
        _tile_too_large(config, problem)
        or _group_too_large(config, problem, device)
        or _too_many_registers(config, problem, kernel)
    )


def prune_program(program: Program, device: Device) -> str:
    """The same for generated text: why the device cannot run it, or ""."""
    has = device.info.capabilities.get("local memory")
    wanted = local_memory(program)
    return f"local memory: {wanted} bytes of {has}" if has and wanted > has else ""


def _tile_too_large(config: Config, problem: Problem) -> str:
    """A smaller choice covers as much with as many programs, or all there is."""
    largest = max((v for v in problem.sizes.values()), default=0)
    for name, value in config.constants.items():
        smaller = _next_smaller(problem, name, value)
        if smaller is None:
            continue
        if smaller >= largest:
            return f"tile too large: {name}={value} for sizes up to {largest}"
        other = replace(config, constants={**config.constants, name: smaller})
        if _saves_no_program(problem, config, other):
            return f"tile too large: {name}={value} needs as many programs as {name}={smaller}"
    return ""


def _next_smaller(problem: Problem, name: str, value: int) -> int | None:
    choices = map(int, problem.request.definition.schedule[name].choices)
    return max((choice for choice in choices if choice < value), default=None)


def _saves_no_program(problem: Problem, config: Config, smaller: Config) -> bool:
    """True if the grid depends on what differs between the two, but has one size for both."""
    try:
        one, other = problem.kernel(config), problem.kernel(smaller)
    except CompileError:
        return False
    return one.grid != other.grid and problem.programs(config) == problem.programs(smaller)


def _group_too_large(config: Config, problem: Problem, device: Device) -> str:
    has = device.info.capabilities.get("largest work-group")
    lanes = config.lanes or problem.target.lanes
    if problem.target.kind == "simt" and has and lanes > has:
        return f"work-group too large: {lanes} of {has}"
    return ""


def _too_many_registers(config: Config, problem: Problem, kernel: ir.Kernel) -> str:
    lanes = config.lanes or problem.target.lanes
    simd = problem.target.kind == "simd"
    has = VECTORS.get(lanes, 16) if simd else VALUES * 16 // lanes
    wanted = registers(kernel, lanes)
    if wanted > SPILL * has:
        return f"too many registers: loops carry {wanted} of {has}"
    return ""
