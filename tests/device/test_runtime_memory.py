"""Buffers of real devices: values, huge pages, limits, measured rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ferro.runtime import DeviceError, OutOfMemory, open_device
from ferro.runtime.limits import measure

pytestmark = pytest.mark.device


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


def test_what_does_not_fit_is_refused_with_numbers(device: Any) -> None:
    with pytest.raises(OutOfMemory, match=r"no room for 4194304\.0 MiB of kv"):
        device.empty((1 << 42,), np.uint8, "kv")
    assert device.memory()["kv"] == 0


def test_limits_are_plausible(device: Any) -> None:
    limits = measure(device, megabytes=16)
    assert 1e8 < limits.read < 1e13
    assert 1e8 < limits.f32 < 1e13
    if device.target.dot != "emulated":
        assert limits.dot is not None and 1e9 < limits.dot < 1e14
