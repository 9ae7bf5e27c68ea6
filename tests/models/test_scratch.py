"""Memory that passes share: one buffer for a role and width, seen with any number of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ferro.models.scratch import Scratch
from ferro.runtime import DeviceError, open_device
from ferro.runtime.device import Device
from kernels_src.quantise import quantise


@pytest.fixture(params=["interpreter", "intel"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    try:
        opened = open_device(request.param)
    except DeviceError as error:
        pytest.skip(str(error))
    with opened:
        yield opened


def test_shapes_of_a_role_share_memory(device: Device) -> None:
    scratch = Scratch(device, rows=64)
    first, second = scratch.array("a", 40, 8), scratch.array("a", 7, 8)
    assert first.shape == (40, 8) and second.shape == (7, 8)
    assert first.overlaps(second) and scratch.array("a", 40, 8) is first
    assert not first.overlaps(scratch.array("b", 40, 8))
    assert not first.overlaps(scratch.array("a", 40, 16))
    assert scratch.nbytes == 64 * 4 * (8 + 8 + 16)


def test_more_rows_than_there_are_make_a_new_buffer(device: Device) -> None:
    scratch = Scratch(device, rows=4)
    before = scratch.array("a", 4, 8)
    assert scratch.array("a", 9, 8).shape == (9, 8)
    assert scratch.nbytes == 9 * 8 * 4
    before.write(np.ones((4, 8), np.float32))  # what a plan holds stays of use


def test_activations_of_fewer_rows_are_those_of_a_matrix_of_their_own(device: Device) -> None:
    scratch = Scratch(device, rows=33)
    x = np.random.default_rng(0).standard_normal((33, 64)).astype(np.float32)
    for rows in (33, 5, 16):
        given = device.array(x[:rows])
        own, shared = device.activations(rows, 64), scratch.activations("a", rows, 64)
        for y in (own, shared):
            device.run(quantise, x=given, y=y)
        found, wanted = shared.read(), own.read()
        assert found.q.tobytes() == wanted.q.tobytes()
        assert found.scale.tobytes() == wanted.scale.tobytes()


def test_only_activations_are_resized(device: Device) -> None:
    with pytest.raises(DeviceError, match="has no 2 rows of activations"):
        device.empty((4, 8), np.float32).resized(2)
    with pytest.raises(DeviceError, match="has no 5 rows of activations"):
        device.activations(4, 32).resized(5)


def test_passes_that_want_no_row_share_the_memory_of_those_that_do(device: Device) -> None:
    scratch = Scratch(device)
    for make in (scratch.activations, scratch.array):
        assert make("normed", 5, 64).shape == (5, 64)
        assert make("normed", 0, 64).shape == (0, 64)
