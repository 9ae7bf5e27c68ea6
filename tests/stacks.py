"""The OpenCL stacks that kernels are run on, as fixtures.

A stack is a device and a way to lower: ``stack(kernel, config=..., **arguments)`` runs there.
``FERRO_STACKS`` (comma-separated names) chooses some; those that are not installed are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest

os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")

from ferro.codegen.program import Config, Target
from ferro.runtime import DeviceError, open_device
from ferro.runtime.device import Device

FULL = os.environ.get("FERRO_CONFORMANCE") == "full"
STACKS = ("pocl-simd", "pocl-simt", "intel-simd", "intel-simt", "rusticl-simt")
_CHOSEN = tuple(filter(None, os.environ.get("FERRO_STACKS", "").split(","))) or STACKS


@dataclass(frozen=True)
class Stack:
    """A device and a target on it. ``exact``: subnormals are kept. ``endless``: loops may run on;
    llvmpipe leaves all loops of a work-item after 65,535 turns together, without a word."""

    name: str
    device: Device
    target: Target

    @property
    def exact(self) -> bool:
        return not self.name.startswith("rusticl")

    @property
    def endless(self) -> bool:
        return not self.name.startswith("rusticl")

    def share(self, configs: Sequence[Config]) -> Sequence[Config]:
        """The configs that a short run has time for: PoCL's compiler gets the first only."""
        return configs if FULL or self.name.startswith("intel") else configs[:1]

    def __call__(self, kernel: Any, config: Config | None = None, **arguments: Any) -> None:
        self.device.run(kernel, config, self.target, **arguments)


@lru_cache(maxsize=None)
def open_stack(name: str) -> Stack:
    """Opens a stack; raises what ``open_device`` raises where it is missing."""
    alias, kind = name.split("-")
    device = open_device(alias)
    return Stack(name, device, next(t for t in device.targets() if t.kind == kind))


def _opened(name: str) -> Stack:
    try:
        return open_stack(name)
    except DeviceError as error:
        pytest.skip(f"{name}: {error}")


@pytest.fixture(params=_CHOSEN)
def stack(request: pytest.FixtureRequest) -> Stack:
    """Each stack of this machine in turn."""
    return _opened(request.param)


_SLOW = ("pocl-simt", "rusticl-simt")


@pytest.fixture(params=[name for name in _CHOSEN if FULL or name not in _SLOW] or _CHOSEN)
def tuned_stack(request: pytest.FixtureRequest) -> Stack:
    """The stacks that build further schedules: in a short run those for which there is time."""
    return _opened(request.param)


_QUICK = [name for name in _CHOSEN if name.startswith("intel")]


@pytest.fixture(params=_CHOSEN if FULL or not _QUICK else _QUICK)
def quick_stack(request: pytest.FixtureRequest) -> Stack:
    """In a short run the stacks with a quick compiler."""
    return _opened(request.param)


@pytest.fixture(params=_CHOSEN if FULL or not _QUICK else _QUICK[:1])
def quickest_stack(request: pytest.FixtureRequest) -> Stack:
    """In a short run one stack, for what the other ones would have to build many kernels."""
    return _opened(request.param)
