"""Launches that were bound once and are replayed: kernel objects with their arguments set.

What changes between replays must live in buffers. A plan keeps its buffers alive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ferro.dsl import ir
from ferro.runtime.errors import DeviceError
from ferro.runtime.queues import Queue, Size

if TYPE_CHECKING:
    import pyopencl as cl

    from ferro.runtime.buffers import Buffer

Kind = TypeVar("Kind")


class Recorder(Generic[Kind]):
    """The plan that each thread is recording, if any."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def plan(self) -> Kind | None:
        found: Kind | None = getattr(self._local, "plan", None)
        return found

    @contextmanager
    def recording(self, plan: Kind) -> Iterator[Kind]:
        """Let this thread's launches go into ``plan``. Raises DeviceError if it records one."""
        if self.plan is not None:
            raise DeviceError("a plan is being recorded already")
        self._local.plan = plan
        try:
            yield plan
        finally:
            self._local.plan = None


@dataclass(frozen=True, eq=False)
class Step:
    """One OpenCL kernel, its sizes, and which arguments are buffers (index, parameter)."""

    name: str
    kernel: cl.Kernel
    size: Size
    local: Size
    buffers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, eq=False)
class Launched:
    """What one call of a plan launches: the specialised kernel, its arguments, and how many
    commands of the queue that is."""

    kernel: ir.Kernel
    arguments: Mapping[str, Any]
    commands: int


class Plan:
    """A sequence of launches. Record with ``with device.plan() as plan:``, then ``plan.run()``."""

    def __init__(self, queue: Queue) -> None:
        import pyopencl as cl

        self.queue = queue
        self.steps: list[Step] = []
        self.launches: list[Launched] = []
        self._calls: list[tuple[cl.Kernel, Size, Size]] = []
        self._kept: list[Any] = []
        self._buffers: dict[int, Buffer] = {}
        self._enqueue = cl.enqueue_nd_range_kernel
        self._error = cl.Error

    def __len__(self) -> int:
        return len(self.steps)

    def add(
        self, steps: list[Step], buffers: Iterable[Buffer], launched: Launched, keep: Any
    ) -> None:
        """Append steps whose arguments are set; the plan keeps ``buffers`` and ``keep`` alive."""
        self.steps += steps
        self.launches.append(launched)
        self._calls += [(step.kernel, step.size, step.local) for step in steps]
        self._buffers.update((id(buffer), buffer) for buffer in buffers)
        self._kept.append(keep)

    def run(self, first: int = 0, count: int | None = None) -> None:
        """Enqueue every launch in order, or ``count`` commands from the ``first`` on; does not
        wait.

        Raises DeviceLost, or DeviceError if a buffer was released or the device closed since.
        """
        queue = self.queue
        wanted = slice(first, None if count is None else first + count)
        for buffer in self._buffers.values():
            buffer.owner.check_open()
            _ = buffer.memory  # a runtime may crash on memory that is gone
        with queue.lock:
            if queue.profiler is not None:
                for step in self.steps[wanted]:
                    queue.enqueue(step.kernel, step.size, step.local, step.name)
                return
            queue.watchdog.check()
            queue.progress.start()
            enqueue, raw = self._enqueue, queue.raw
            try:
                for kernel, size, local in self._calls[wanted]:
                    enqueue(raw, kernel, size, local)
            except self._error as error:
                raise queue.failure(error) from error
        queue.flush()

    def extend(self, other: Plan) -> None:
        """Append another plan's launches."""
        if other.queue is not self.queue:
            raise DeviceError("plans of different devices cannot be joined")
        self.steps += other.steps
        self.launches += other.launches
        self._calls += other._calls
        self._buffers |= other._buffers
        self._kept += other._kept
