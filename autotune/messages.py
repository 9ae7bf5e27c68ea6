"""What the tuner and its child process say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ferro.arguments import Arguments
from ferro.codegen.program import Config, Target
from ferro.dsl import ir


@dataclass(frozen=True)
class Job:
    """All that a child needs to know before the first request."""

    device: str
    timeout: float
    target: Target
    arguments: Arguments
    expected: dict[str, Any]


@dataclass(frozen=True)
class Check:
    """Build a config, launch it once, compare bits. Answered by a ``Checked``."""

    kernel: ir.Kernel
    config: Config


@dataclass(frozen=True)
class Time:
    """Time a config that was checked. Answered by a list of seconds."""

    config: Config
    seconds: float


@dataclass(frozen=True)
class Checked:
    """``differing`` elements by output, or why there was no launch."""

    differing: dict[str, int]
    failure: str = ""
