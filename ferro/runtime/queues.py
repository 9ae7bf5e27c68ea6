"""The one in-order queue of a device: enqueue, copy, wait with a timeout, profile.

Failures of the driver and waits that run out become ``DeviceLost``.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ferro.runtime.errors import DeviceError, DeviceLost, OutOfMemory
from ferro.runtime.profiler import Profiler, Timing
from ferro.runtime.progress import Progress
from ferro.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    import pyopencl as cl

Size = tuple[int, int, int]
TICK = 1e-3  # seconds that a clock must be able to tell


class Queue:
    """Commands run in the order in which they were given; every command can be timed.

    ``progress`` says which are complete, and frees what launches still used when it was dropped.
    """

    def __init__(self, context: cl.Context, device: cl.Device, name: str, timeout: float) -> None:
        import pyopencl as cl

        self._cl = cl
        self.raw = cl.CommandQueue(
            context, device, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self.watchdog = Watchdog(name, timeout)
        self.progress = Progress()
        self.profiler: Profiler | None = None
        self.lock = threading.RLock()
        weakref.finalize(self, _drain, self.raw, self.watchdog, self.progress)

    def enqueue(self, kernel: cl.Kernel, size: Size, local: Size, name: str) -> cl.Event:
        """Start a kernel whose arguments are set."""
        self.watchdog.check()
        began = self._begin()
        try:
            with self.lock:
                self.progress.start()
                event = self._cl.enqueue_nd_range_kernel(self.raw, kernel, size, local)
        except self._cl.Error as error:
            raise self.failure(error) from error
        if self.profiler is not None:
            self._record(name, event, began)
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

            with self.lock:
                self.progress.start()
                self._cl.enqueue_fill_buffer(
                    self.raw, memory, np.frombuffer(pattern, np.uint8), 0, size
                )
        except self._cl.Error as error:
            raise self.failure(error) from error

    def finish(self, timeout: float | None = None) -> None:
        """Wait for everything enqueued so far. Raises DeviceLost after ``timeout`` seconds."""
        self.watchdog.check()
        try:
            with self.lock:
                number = self.progress.started
                event = self._cl.enqueue_marker(self.raw)
                self.raw.flush()
        except self._cl.Error as error:
            raise self.failure(error) from error
        self.watchdog.wait(event, timeout)
        self.progress.complete(number)

    def flush(self) -> None:
        """Let the device begin with what is enqueued."""
        self.raw.flush()

    @functools.cached_property
    def clock(self) -> bool:
        """True if the timestamps of events tell time (those of llvmpipe count events)."""
        first = self._timestamp()
        time.sleep(2 * TICK)
        return self._timestamp() - first > TICK * 1e9

    def _timestamp(self) -> int:
        event = self._cl.enqueue_marker(self.raw)
        self.raw.flush()
        self.watchdog.wait(event)
        return int(event.profile.end)

    def _begin(self) -> float:
        """Where the host has to time a command that is profiled: the time at which it begins, with
        nothing before it in the queue."""
        if self.profiler is None or self.clock:
            return 0.0
        self.finish()
        return time.perf_counter()

    def _record(self, name: str, event: cl.Event, began: float) -> None:
        assert self.profiler is not None
        if self.clock:
            self.profiler.add(name, event)
        else:
            self.watchdog.wait(event)
            self.profiler.measured.append(Timing(name, began, began, time.perf_counter()))

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
        began = self._begin()
        try:
            with self.lock:
                number = self.progress.start()
                event = self._cl.enqueue_copy(self.raw, target, source, is_blocking=False)
                self.raw.flush()
        except self._cl.Error as error:
            raise self.failure(error) from error
        try:
            self.watchdog.wait(event)
        except DeviceLost:
            # its destructor would wait for the copy
            _abandoned.append(event)
            raise
        self.progress.complete(number)
        if self.profiler is not None:
            self._record(name, event, began)


_abandoned: list[Any] = []


def _drain(raw: cl.CommandQueue, watchdog: Watchdog, progress: Progress) -> None:
    """Let kernels end before their memory goes, at the latest when the process ends.

    What a lost device may still use is never freed. No thread waits: none can be started then.
    """
    import pyopencl as cl

    number = progress.started
    if progress.completed >= number:
        return
    try:
        event = cl.enqueue_marker(raw)
        raw.flush()
        deadline = time.monotonic() + (0 if watchdog.lost else watchdog.timeout)
        while event.command_execution_status > cl.command_execution_status.COMPLETE:
            if time.monotonic() > deadline:
                _abandoned.extend([event, progress])
                return
            time.sleep(1e-3)
    except cl.Error:
        _abandoned.append(progress)
        return
    progress.complete(number)
