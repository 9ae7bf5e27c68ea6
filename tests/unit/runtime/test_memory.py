"""The account, the limits and the arithmetic of parts, with no device behind them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from ferro.dsl.quantised import A8, Q8
from ferro.runtime.errors import DeviceError, OutOfMemory
from ferro.runtime.memory import PARKED, Memory, huge_pages, megabytes
from ferro.runtime.progress import Progress


class Raw:
    """Stands for a cl.Buffer: bytes in host memory."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def get_sub_region(self, origin: int, size: int) -> Raw:
        return Raw(self.data[origin : origin + size])

    def release(self) -> None:
        self.data = None


class Copies:
    """Transfers of a device whose launches are complete when somebody waits."""

    def __init__(self) -> None:
        self.progress = Progress()

    def finish(self) -> None:
        self.progress.complete(self.progress.started)

    def upload(self, memory: Raw, data: Any) -> None:
        memory.data[: data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def download(self, memory: Raw, data: Any) -> None:
        data.reshape(-1).view(np.uint8)[:] = memory.data[: data.nbytes]


class FakeMemory(Memory):
    def _allocate(self, size: int) -> Any:
        return Raw(np.zeros(size, np.uint8))


@pytest.fixture
def memory() -> Memory:
    return FakeMemory("fake", None, Copies(), 1 << 20, 3 << 20, 128, mapped=False)  # type: ignore[arg-type]


def test_the_account_follows_buffers(memory: Memory) -> None:
    weights = memory.array((1000,), np.float32, "weights")
    other = memory.array((10, 10), np.int8, "kv")
    assert memory.account.held["weights"] == 4000 and memory.account.held["kv"] == 100
    del weights
    gc.collect()
    assert memory.account.total == 100 and memory.account.peak == 4100
    other.release()
    assert memory.account.total == 0


def test_a_part_keeps_its_buffer_alive(memory: Memory) -> None:
    part = memory.array((64, 32), np.float32).part(1, 3)
    gc.collect()
    assert memory.account.total == 64 * 32 * 4
    del part
    gc.collect()
    assert memory.account.total == 0


def test_memory_of_running_launches_is_kept(memory: Memory) -> None:
    progress = memory.transfers.progress
    buffer = memory.array((1000,), np.uint8)
    raw = weakref.ref(buffer.memory)
    progress.start()
    del buffer
    gc.collect()
    assert raw() is not None and memory.account.total == progress.parked == 1000
    memory.transfers.finish()
    assert raw() is None and memory.account.total == progress.parked == 0


def test_a_full_device_waits_for_memory_of_launches(memory: Memory) -> None:
    for _ in range(5):
        memory.array((1 << 20,), np.uint8)
        memory.transfers.progress.start()
    assert memory.account.peak <= 3 << 20


def test_not_much_memory_waits_for_launches() -> None:
    memory = FakeMemory("fake", None, Copies(), PARKED, 9 * PARKED, 128, mapped=False)  # type: ignore[arg-type]
    for _ in range(8):
        buffer = memory.array((PARKED // 2,), np.uint8)
        memory.transfers.progress.start()
        del buffer
        assert memory.transfers.progress.parked <= 1.5 * PARKED


def test_a_released_buffer_is_of_no_use(memory: Memory) -> None:
    buffer = memory.array((1000,), np.uint8)
    raw = weakref.ref(buffer.memory)
    buffer.release()
    assert raw() is None and memory.account.total == 0
    with pytest.raises(DeviceError, match="was released"):
        buffer.read()


def test_too_large_for_one_buffer(memory: Memory) -> None:
    with pytest.raises(OutOfMemory, match=r"2\.0 MiB of weights.*largest buffer.*1\.0 MiB") as e:
        memory.array((2 << 20,), np.uint8, "weights")
    assert e.value.exit_code == 3


def test_too_large_for_the_device(memory: Memory) -> None:
    held = [memory.array((1 << 20,), np.uint8, "kv") for _ in range(3)]
    with pytest.raises(OutOfMemory, match=r"has 3\.0 MiB; held now: kv 3\.0 MiB"):
        memory.array((1,), np.uint8)
    held.pop()
    assert memory.array((1,), np.uint8).nbytes == 1


def test_a_refusing_driver_leaves_the_account_alone(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(size: int) -> Any:
        raise RuntimeError("clCreateBuffer failed")

    monkeypatch.setattr(memory, "_allocate", refuse)
    with pytest.raises(OutOfMemory, match="clCreateBuffer failed"):
        memory.array((100,), np.uint8)
    assert memory.account.total == 0


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 5), (4, 5)])
def test_values_come_back(memory: Memory, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).random(shape).astype(np.float32)
    buffer = memory.copy(values)
    assert buffer.shape == shape
    assert np.array_equal(buffer.read(), values)
    into = np.empty(shape, np.float32)
    buffer.read_into(into)
    assert np.array_equal(into, values)


def test_parts_share_memory(memory: Memory) -> None:
    buffer = memory.copy(np.arange(64 * 8, dtype=np.float32).reshape(64, 8))
    part = buffer.part(4, 8)
    assert np.array_equal(part.read(), buffer.read()[4:8])
    part.write(np.zeros((4, 8), np.float32))
    assert not buffer.read()[4:8].any() and buffer.read()[8:].all()
    inner = part.part(0, 2)
    assert inner.overlaps(buffer) and inner.overlaps(part)
    assert not inner.overlaps(buffer.part(8, 12)) and inner.root == buffer.root
    assert np.array_equal(buffer.reshape(8, 64).read().reshape(64, 8), buffer.read())


def test_a_part_must_be_aligned(memory: Memory) -> None:
    buffer = memory.array((64, 8), np.float32)
    with pytest.raises(DeviceError, match="multiples of 128 bytes.*row 3 .* byte 96"):
        buffer.part(3, 8)
    with pytest.raises(DeviceError, match="no part"):
        buffer.part(8, 65)


@pytest.mark.parametrize(
    "data", [np.zeros(5, np.float32), np.zeros((4, 1), np.float32), np.zeros(4, np.int32)]
)
def test_writing_something_else_is_refused(memory: Memory, data: Any) -> None:
    with pytest.raises(DeviceError, match="does not match"):
        memory.array((4,), np.float32).write(data)


def test_quantised_forms(memory: Memory) -> None:
    rng = np.random.default_rng(1)
    weights = memory.weights(Q8.quantize(rng.random((70, 64), np.float32)), 16, biased=True)
    assert (weights.format, weights.shape, weights.layout) == ("q8", (70, 64), (16, True))
    assert memory.account.held["weights"] == 128 * 2 * 34
    with pytest.raises(DeviceError, match="not read back"):
        weights.read()
    given = A8.quantize(rng.random((3, 40), np.float32))
    buffer = memory.activations(3, 40)
    assert not buffer.read().q.any()
    buffer.write(given)
    got = buffer.read()
    assert np.array_equal(got.q, given.q) and np.array_equal(got.scale, given.scale)
    assert got.shape == (3, 40) and np.array_equal(got.sums, given.sums)
    with pytest.raises(DeviceError, match="a8 of shape"):
        buffer.write(A8.empty(4, 40))


def test_huge_pages_are_aligned() -> None:
    block = huge_pages((4 << 20) + 5)
    assert block.nbytes == (4 << 20) + 5 and block.ctypes.data % (2 << 20) == 0
    block[-1] = 7
    assert block[-1] == 7


def test_sizes_read_well() -> None:
    assert megabytes(100) == "100 bytes" and megabytes(3 << 19) == "1.5 MiB"
