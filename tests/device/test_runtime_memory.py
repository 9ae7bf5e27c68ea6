"""Buffers of real devices: values, huge pages, limits, measured rates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.dsl import kernel, tl
from ferro.runtime import DeviceError, OutOfMemory, open_device
from ferro.runtime.limits import has_dot, measure

pytestmark = pytest.mark.device
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["pocl", "intel"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    try:
        with open_device(request.param) as opened:
            yield opened
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_values_come_back(device: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    buffer = device.array(np.asarray(values))
    assert np.array_equal(buffer.read(), values) and buffer.read().dtype == dtype


def test_large_buffers_are_mapped_and_shared(device: Any) -> None:
    values = np.arange(2 << 20, dtype=np.float32)  # 8 MiB
    buffer = device.array(values, "weights")
    assert np.array_equal(buffer.read(), values)
    half = buffer.part(1 << 20, 2 << 20)
    half.write(np.zeros(1 << 20, np.float32))
    assert not buffer.read()[1 << 20 :].any() and buffer.read()[1 << 19] == 1 << 19
    assert device.memory()["weights"] == 8 << 20


@kernel
def relaxed(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N], turns: tl.i32):
    n = tl.block(0, N, 64)
    v = tl.load(x[n], mask=n < N)
    for _ in range(turns):
        v = v * 0.5 + 1.0
    tl.store(y[n], v, mask=n < N)


def test_a_launch_keeps_the_memory_of_dropped_buffers(device: Any) -> None:
    count = 2 << 20  # 8 MiB: memory that Ferro maps
    x, y = device.array(np.ones(count, np.float32)), device.empty((count,), np.float32)
    device.run(relaxed, x=x, y=y, turns=300)
    device.finish()
    held = device.memory()["io"]
    device.run(relaxed, x=x, y=y, turns=300)
    x.release()
    del x, y
    assert device.memory()["io"] == held
    device.finish()
    assert device.memory()["io"] == 0


@pytest.mark.parametrize("name", ["pocl", "intel"])
def test_a_process_that_ends_lets_its_launches_end(name: str) -> None:
    program = f"""
import sys
import numpy as np
from ferro.dsl import kernel, tl
from ferro.runtime import DeviceError, open_device
from tests.device.test_runtime_memory import relaxed
try:
    device = open_device({name!r})
except DeviceError as error:
    sys.exit(f"skip: {{error}}")
x, y = device.array(np.ones(1 << 20, np.float32)), device.empty((1 << 20,), np.float32)
device.run(relaxed, x=x, y=y, turns=2000)
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    if "skip: " in ended.stderr:
        pytest.skip(ended.stderr)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_does_not_fit_is_refused_with_numbers(device: Any) -> None:
    with pytest.raises(OutOfMemory, match=r"no room for 4194304\.0 MiB of kv"):
        device.empty((1 << 42,), np.uint8, "kv")
    assert device.memory()["kv"] == 0


def test_limits_are_plausible(device: Any) -> None:
    limits = measure(device, megabytes=16)
    assert 1e8 < limits.read < 1e13
    assert 1e8 < limits.f32 < 1e13
    if has_dot(device.target):
        assert limits.dot is not None and 1e9 < limits.dot < 1e14
