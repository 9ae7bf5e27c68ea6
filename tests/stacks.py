"""The OpenCL stacks that kernels are run on, as fixtures.

A stack is a device and a way to lower: ``stack(kernel, config=..., **arguments)`` runs there.
``FERRO_STACKS`` (comma-separated names) chooses some; those that are not installed are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import pytest

os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")

from ferro.runtime import open_device

STACKS = ("pocl-simd", "pocl-simt", "intel-simd", "intel-simt", "rusticl-simt")
_CHOSEN = tuple(filter(None, os.environ.get("FERRO_STACKS", "").split(","))) or STACKS


@lru_cache(maxsize=None)
def open_stack(name: str) -> Callable[..., None]:
    """The launcher of a stack; raises what ``open_device`` raises where it is missing."""
    device, kind = name.split("-")
    opened = open_device(device)
    target = next(target for target in opened.targets() if target.kind == kind)
    return partial(opened.run, target=target)


def _runner(name: str) -> Callable[..., Any]:
    try:
        return open_stack(name)
    except Exception as error:
        pytest.skip(f"{name}: {error}")


@pytest.fixture(params=_CHOSEN)
def stack(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Each stack of this machine in turn."""
    return _runner(request.param)


@pytest.fixture(params=[name for name in _CHOSEN if not name.startswith("rusticl")])
def every_stack(request: pytest.FixtureRequest) -> Callable[..., None]:
    """The stacks whose compiler is quick enough to build all schedules of a kernel."""
    return _runner(request.param)
