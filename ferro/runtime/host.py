"""The interpreter as a device: the same calls and buffers, in host memory, no OpenCL anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from ferro import codegen, system
from ferro.codegen.program import Config, Target
from ferro.dsl import bounds
from ferro.dsl.interpreter import ORDERS, interpret
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.runtime import calls
from ferro.runtime.buffers import Array, Buffer, checked_shape
from ferro.runtime.device import Device, attached
from ferro.runtime.errors import CallError, DeviceError, OutOfMemory
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.memory import Memory, check_weights
from ferro.runtime.plan import Launched, Recorder
from ferro.runtime.profiler import Profiler, Timing
from ferro.runtime.progress import Progress


class HostCopies:
    """Transfers where both sides are host memory."""

    def __init__(self) -> None:
        self.progress = Progress()

    def finish(self) -> None:
        """Nothing to wait for."""

    def upload(self, memory: Array, data: Array) -> None:
        memory[: data.nbytes] = data.reshape(-1).view(np.uint8)

    def download(self, memory: Array, data: Array) -> None:
        data.reshape(-1).view(np.uint8)[:] = memory[: data.nbytes]


class HostMemory(Memory):
    """Buffers of bytes in host memory; quantised ones are a ``Q8``, a ``Q4`` or an ``A8``."""

    def __init__(self, name: str) -> None:
        total = system.total_memory()
        super().__init__(name, None, HostCopies(), total, total, 1, mapped=False)

    def weights(
        self, data: Q8 | Q4, lanes: int = 1, biased: bool = False, purpose: str = "weights"
    ) -> Buffer:
        check_weights(data)
        return self._quantised(data.format, data.shape, data.nbytes, purpose, data.copied)

    def activations(self, rows: int, cols: int, purpose: str = "scratch") -> Buffer:
        shape = checked_shape((rows, cols))
        blocks = -(-shape[1] // 32)
        size = shape[0] * blocks * 40
        return self._quantised("a8", shape, size, purpose, lambda: A8.empty(*shape))

    def a8_region(self, memory: A8, shape: tuple[int, int]) -> tuple[int, A8]:
        found = memory.first(shape[0])
        return found.nbytes, found

    def read_a8(self, buffer: Buffer) -> A8:
        held: A8 = buffer.memory
        return A8(held.q.copy(), held.scale.copy(), held.cols)

    def write_a8(self, buffer: Buffer, data: A8) -> None:
        self.check_open()
        held: A8 = buffer.memory
        held.q[...], held.scale[...], held.sums[...] = data.q, data.scale, data.sums

    def region(self, memory: Array, start: int, size: int) -> Array:
        return memory[start : start + size]

    def plain(self, name: str, value: Any) -> Array | Q8 | Q4 | A8:
        """An argument as the interpreter takes it; of a buffer its very memory.

        Raises DeviceError for a buffer of another device or one that was released.
        """
        if isinstance(value, calls.HOST_FORMS):
            return value
        buffer = calls.check_owner(name, value, self)
        if buffer.format:
            held: Q8 | Q4 | A8 = buffer.memory
            return held
        array: Array = buffer.memory[: buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
        return array

    def _quantised(
        self,
        format: str,
        shape: tuple[int, ...],
        size: int,
        purpose: str,
        make: Callable[[], Q8 | Q4 | A8],
    ) -> Buffer:
        return self._buffer(shape, np.dtype(np.uint8), size, purpose, format, make=make)

    def _allocate(self, size: int) -> Array:
        return np.zeros(size, np.uint8)


class HostPlan:
    """Recorded calls of the interpreter. A plan keeps its buffers alive."""

    def __init__(self, store: Memory) -> None:
        self.store = store
        self.calls: list[Callable[[], None]] = []
        self.launches: list[Launched] = []
        self._buffers: dict[int, Buffer] = {}

    def __len__(self) -> int:
        return len(self.calls)

    def add(self, call: Callable[[], None], launched: Launched) -> None:
        self.calls.append(call)
        self.launches.append(launched)
        buffers = launched.arguments.values()
        self._buffers.update((id(b), b) for b in buffers if isinstance(b, Buffer))

    def run(self, first: int = 0, count: int | None = None) -> None:
        """Run every call in order, or ``count`` calls from the ``first`` on. Raises DeviceError if
        a buffer was released or the device closed since."""
        self.store.check_open()
        for buffer in self._buffers.values():
            _ = buffer.memory
        for call in self.calls[first : None if count is None else first + count]:
            call()

    def extend(self, other: HostPlan) -> None:
        """Append another plan's launches."""
        if other.store is not self.store:
            raise DeviceError("plans of different devices cannot be joined")
        self.calls += other.calls
        self.launches += other.launches
        self._buffers |= other._buffers


class InterpreterDevice(Device):
    """Runs kernels by evaluating their IR with numpy; everything is complete on return."""

    store: HostMemory

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.profiler: Profiler | None = None
        self.store = HostMemory(info.alias)
        self._recorder: Recorder[HostPlan] = Recorder()

    @property
    def target(self) -> Target:
        return Target("simd", 16)

    def targets(self) -> tuple[Target, ...]:
        return (self.target,)

    def lowered_for(self) -> Target:
        raise CallError(
            "the interpreter has no OpenCL C: name a target, such as target='simd-16-emulated' or "
            "target='simt-16-dp4a'"
        )

    def weights(
        self,
        data: Q8 | Q4,
        purpose: str = "weights",
        target: Target | str | None = None,
        config: Config | Mapping[str, int] | None = None,
    ) -> Buffer:
        codegen.resolve(self.aimed(target) or self.target, calls.settled(config))
        return self.store.weights(data, purpose=purpose)

    def run(
        self,
        kernel: Any,
        /,
        *positional: Any,
        config: Config | Mapping[str, int] | None = None,
        target: Target | str | None = None,
        order: str = "together",
        seed: int | None = None,
        breakpoints: bool = False,
        **arguments: Any,
    ) -> None:
        """Like ``Device.run``; ``order`` and ``seed`` choose the order of programs ("together",
        "one_by_one"), ``breakpoints`` lets the kernel's `breakpoint()` stop."""
        if order not in ORDERS:
            raise CallError(f"`order` is {order!r}, not one of {', '.join(ORDERS)}")
        if seed is not None and not (isinstance(seed, int) and seed >= 0):
            raise CallError(f"`seed` is {seed!r}, not a whole number from 0 on")
        self.store.check_open()
        call = self._call(kernel, positional, config, target, arguments)
        self._launch(call, order=order, seed=seed, breakpoints=bool(breakpoints))

    def _launch(self, call: calls.Call, **options: Any) -> None:
        if self._recorder.plan is not None:
            calls.check_recordable(call.arguments)
        chosen, made, given, bound = self.bound(
            call.kernel, call.arguments, call.config, call.target
        )
        # A launch that a device would refuse is refused here too.
        bounds.check(made, bound.scalars, bound.grid, bound.extents)
        codegen.resolve(call.target or self.target, chosen)
        arrays = {name: self.store.plain(name, value) for name, value in bound.buffers.items()}

        def run() -> None:
            began = time.perf_counter()
            try:
                interpret(made, arrays, bound.scalars, bound.grid, **options)
            except MemoryError as error:
                raise OutOfMemory(
                    f"`{made.name}` does not fit into the interpreter's memory: {error}"
                ) from error
            self._note(made.name, began)

        if self._recorder.plan is not None:
            self._recorder.plan.add(run, Launched(made, given, 1))
        else:
            run()

    def plan(self) -> AbstractContextManager[HostPlan]:
        self.store.check_open()
        return self._recorder.recording(HostPlan(self.store))

    def finish(self, timeout: float | None = None) -> None:
        """Nothing to wait for."""
        self.store.check_open()

    @contextmanager
    def profile(self) -> Iterator[Profiler]:
        self.store.check_open()
        with attached(self) as profiler:
            yield profiler

    def close(self) -> None:
        self.store.closed = True

    def _note(self, name: str, began: float) -> None:
        if self.profiler is not None:
            self.profiler.measured.append(Timing(name, began, began, time.perf_counter()))
