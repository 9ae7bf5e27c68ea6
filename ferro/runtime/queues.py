"""The one in-order queue of a device: enqueue, copy, wait with a timeout, profile.

Failures of the driver and waits that run out become ``DeviceLost``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ferro.runtime.errors import DeviceError, DeviceLost, OutOfMemory
from ferro.runtime.profiler import Profiler
from ferro.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    import pyopencl as cl

Size = tuple[int, int, int]


class Queue:
    """Commands run in the order in which they were given; every command has timestamps."""

    def __init__(self, context: cl.Context, device: cl.Device, name: str, timeout: float) -> None:
        import pyopencl as cl

        self._cl = cl
        self.raw = cl.CommandQueue(
            context, device, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self.watchdog = Watchdog(name, timeout)
        self.profiler: Profiler | None = None
        self.lock = threading.RLock()

    def enqueue(self, kernel: cl.Kernel, size: Size, local: Size, name: str) -> cl.Event:
        """Start a kernel whose arguments are set."""
        self.watchdog.check()
        try:
            event = self._cl.enqueue_nd_range_kernel(self.raw, kernel, size, local)
        except self._cl.Error as error:
            raise self.failure(error) from error
        if self.profiler is not None:
            self.profiler.add(name, event)
        return event

    def upload(self, memory: cl.Buffer, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to the device and wait for it."""
        self._copy(memory, data, "write")

    def download(self, memory: cl.Buffer, data: npt.NDArray[Any]) -> None:
        """Copy device memory into a contiguous array and wait for it."""
        self._copy(data, memory, "read")

    def fill(self, memory: cl.Buffer, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes; does not wait."""
        pattern = bytes([byte])
        self.watchdog.check()
        try:
            import numpy as np

            self._cl.enqueue_fill_buffer(
                self.raw, memory, np.frombuffer(pattern, np.uint8), 0, size
            )
        except self._cl.Error as error:
            raise self.failure(error) from error

    def finish(self, timeout: float | None = None) -> None:
        """Wait for everything enqueued so far. Raises DeviceLost after ``timeout`` seconds."""
        self.watchdog.check()
        try:
            event = self._cl.enqueue_marker(self.raw)
            self.raw.flush()
        except self._cl.Error as error:
            raise self.failure(error) from error
        self.watchdog.wait(event, timeout)

    def flush(self) -> None:
        """Let the device begin with what is enqueued."""
        self.raw.flush()

    def failure(self, error: Exception) -> DeviceError:
        """The exception to raise for an error of the driver."""
        code = getattr(error, "code", 0)
        status = self._cl.status_code
        if code in (status.MEM_OBJECT_ALLOCATION_FAILURE, status.OUT_OF_HOST_MEMORY):
            return OutOfMemory(f"{self.watchdog.name}: {error}")
        if code in (status.OUT_OF_RESOURCES, status.DEVICE_NOT_AVAILABLE, -9999):
            return self.watchdog.lose(str(error))
        return DeviceError(f"{self.watchdog.name}: {error}")

    def _copy(self, target: Any, source: Any, name: str) -> None:
        self.watchdog.check()
        try:
            event = self._cl.enqueue_copy(self.raw, target, source, is_blocking=False)
            self.raw.flush()
        except self._cl.Error as error:
            raise self.failure(error) from error
        if self.profiler is not None:
            self.profiler.add(name, event)
        try:
            self.watchdog.wait(event)
        except DeviceLost:
            # its destructor would wait for the copy
            _abandoned.append(event)
            raise


_abandoned: list[Any] = []


def seconds(events: Sequence[cl.Event]) -> list[float]:
    """The device time of completed events."""
    return [(event.profile.end - event.profile.start) * 1e-9 for event in events]
