"""Configs of a space that are worth trying, each with its kernel and the hash of its program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autotune.problem import Problem
from autotune.prune import prune, prune_program
from autotune.space import space
from ferro import codegen
from ferro.codegen.errors import ConfigError
from ferro.codegen.program import Config, Program
from ferro.dsl import ir
from ferro.runtime.configs import best, shipped
from ferro.runtime.device import Device


@dataclass(frozen=True, eq=False)
class Candidate:
    """A config to try. ``program`` is a hash of all that the device's compiler sees."""

    config: Config
    kernel: ir.Kernel
    program: str
    is_default: bool = False

    @property
    def name(self) -> str:
        return str(self.config)


@dataclass(frozen=True)
class Skipped:
    """A config that is not tried. ``reason`` is "kind: details"."""

    config: Config
    reason: str

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]


def candidates(problem: Problem, device: Device) -> Iterator[Candidate | Skipped]:
    """In the order of ``ordered``; of configs that become the same program
    only the first. Each one is generated when it is asked for."""
    seen: dict[str, Config] = {}
    for config in ordered(problem, device):
        reason = "" if config == problem.default else prune(config, problem, device)
        found = Skipped(config, reason) if reason else _generated(problem, config, device)
        if isinstance(found, Candidate):
            twin = seen.setdefault(found.program, config)
            if twin is not config:
                found = Skipped(config, f"same program: as {twin}")
        yield found


def ordered(problem: Problem, device: Device) -> list[Config]:
    """The default, the shipped winner (a short run must not lose it), then little work first."""
    found, default, given = space(problem, device), problem.default, preset(problem, device)
    first = [default, *(config for config in found if config == given and config != default)]
    return [*first, *(config for config in found if config not in first)]


def preset(problem: Problem, device: Device) -> Config | None:
    """What launches take as long as nothing is tuned here, with every constexpr named."""
    serving = (s for s in shipped() if s.serves(device.info, problem.target))
    found = best([s for s in serving if s.covers(problem.place)])
    if found is None:
        return None
    return replace(found, constants={**problem.default.constants, **found.constants})


def _generated(problem: Problem, config: Config, device: Device) -> Candidate | Skipped:
    kernel = problem.kernel(config)
    try:
        program = codegen.generate(kernel, problem.target, config)
    except ConfigError as error:
        return Skipped(config, f"not possible: {error}")
    reason = prune_program(program, device)
    if reason:
        return Skipped(config, reason)
    return Candidate(config, kernel, fingerprint(program), config == problem.default)


def fingerprint(program: Program) -> str:
    """Equal for programs that differ in their comments only."""
    lines = [line for line in program.source.splitlines() if not line.startswith(("//", "#line"))]
    shapes = [f"{e.groups} {e.local} {e.arguments}" for e in program.entries]
    text = "\n".join([*lines, *program.options, *shapes])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
