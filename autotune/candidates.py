"""Configs of a space that are worth trying, each with its kernel and the hash of its program."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.problem import Problem
from autotune.prune import prune, prune_program
from autotune.space import space
from ferro import codegen
from ferro.codegen.errors import ConfigError
from ferro.codegen.program import Config, Program
from ferro.dsl import ir
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
    """The default first, then from small to large work; of configs that become the same program
    only the first. Each one is generated when it is asked for."""
    seen: dict[str, Config] = {}
    others = (config for config in space(problem, device) if config != problem.default)
    for config in itertools.chain([problem.default], others):
        reason = "" if config == problem.default else prune(config, problem, device)
        found = Skipped(config, reason) if reason else _generated(problem, config, device)
        if isinstance(found, Candidate):
            twin = seen.setdefault(found.program, config)
            if twin is not config:
                found = Skipped(config, f"same program: as {twin}")
        yield found


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
