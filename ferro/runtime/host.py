"""The interpreter as a device: the same calls, numpy arrays as buffers, no OpenCL anywhere."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.codegen.program import Config, Target
from ferro.dsl import bounds, launch
from ferro.dsl.interpreter import interpret
from ferro.dsl.ir import Kernel
from ferro.dsl.quantised import A8, Q8
from ferro.runtime.calls import specialised
from ferro.runtime.device import Device, attached
from ferro.runtime.errors import DeviceError
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.memory import Account, Array
from ferro.runtime.profiler import Profiler, Timing


class HostBuffer:
    """What ``memory.Buffer`` is on a device, around a numpy array, a ``Q8`` or an ``A8``."""

    def __init__(
        self, data: Array | Q8 | A8, purpose: str = "io", account: Account | None = None
    ) -> None:
        self.data, self.purpose = data, purpose
        self.format = {Q8: "q8", A8: "a8"}.get(type(data), "")
        self.dtype = np.dtype(np.uint8) if isinstance(data, (Q8, A8)) else data.dtype
        self.shape: tuple[int, ...] = data.shape
        self.nbytes = data.nbytes
        if account is not None:
            account.take(purpose, self.nbytes)
            weakref.finalize(self, account.give, purpose, self.nbytes)

    def __repr__(self) -> str:
        return f"HostBuffer({self.format or self.dtype}{list(self.shape)}, {self.purpose})"

    def read(self) -> Any:
        """A copy of the values: a numpy array or an ``A8``."""
        if isinstance(self.data, A8):
            return A8(self.data.q.copy(), self.data.scale.copy(), self.data.cols)
        return self._array().copy()

    def read_into(self, data: Array) -> None:
        """Like ``read``, into an array of the same shape and dtype."""
        self._same(data)
        data[...] = self._array()

    def write(self, data: Any) -> None:
        """Replace the values."""
        if isinstance(self.data, A8):
            copy_a8(data, self.data)
            return
        array = np.asarray(data)
        self._same(array)
        self._array()[...] = array

    def part(self, start: int, stop: int) -> HostBuffer:
        """Elements ``start`` to ``stop`` of the first axis, sharing memory."""
        array = self._array()
        if not 0 <= start <= stop <= self.shape[0]:
            raise DeviceError(f"rows {start} to {stop} are no part of {self!r}")
        return HostBuffer(array[start:stop], self.purpose)

    def reshape(self, *shape: int) -> HostBuffer:
        """The same memory under another shape of as many elements."""
        if math.prod(shape) != math.prod(self.shape):
            raise DeviceError(f"{self!r} cannot have shape {list(shape)}")
        return HostBuffer(self._array().reshape(shape), self.purpose)

    def release(self) -> None:
        """Nothing to do: the array goes with its last user."""

    def _array(self) -> Array:
        if isinstance(self.data, (Q8, A8)):
            raise DeviceError(f"{self!r} is no array")
        return self.data

    def _same(self, data: Array) -> None:
        array = self._array()
        if data.shape != array.shape or data.dtype != array.dtype:
            raise DeviceError(f"{data.dtype}{list(data.shape)} does not match {self!r}")


class HostPlan:
    """Recorded calls of the interpreter."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self.calls)

    def run(self) -> None:
        for call in self.calls:
            call()


class InterpreterDevice(Device):
    """Runs kernels by evaluating their IR with numpy; everything is complete on return."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.profiler: Profiler | None = None
        self.account = Account()
        self._plan: HostPlan | None = None

    @property
    def target(self) -> Target:
        return Target("simd", 16)

    def targets(self) -> tuple[Target, ...]:
        return (self.target,)

    def empty(
        self, shape: tuple[int, ...], dtype: npt.DTypeLike, purpose: str = "io"
    ) -> HostBuffer:
        return HostBuffer(np.zeros(shape, dtype), purpose, self.account)

    def array(self, data: npt.NDArray[Any], purpose: str = "io") -> HostBuffer:
        return HostBuffer(np.array(data, order="C"), purpose, self.account)

    def weights(
        self,
        data: Q8,
        purpose: str = "weights",
        target: Target | None = None,
        config: Config | None = None,
    ) -> HostBuffer:
        return HostBuffer(data, purpose, self.account)

    def activations(self, rows: int, cols: int, purpose: str = "scratch") -> HostBuffer:
        return HostBuffer(A8.empty(rows, cols), purpose, self.account)

    def run(
        self,
        kernel: Any,
        config: Config | None = None,
        target: Target | None = None,
        *,
        order: str = "together",
        seed: int | None = None,
        breakpoints: bool = False,
        **arguments: Any,
    ) -> None:
        """Like ``Device.run``; ``order`` and ``seed`` choose the order of programs ("together",
        "one_by_one"), ``breakpoints`` lets the kernel's `breakpoint()` stop."""
        made, given = specialised(kernel, arguments, config)
        plain = {n: v.data if isinstance(v, HostBuffer) else v for n, v in given.items()}
        bound = launch.bind(made, plain)
        # A launch that a device would refuse is refused here too.
        bounds.check(made, bound.scalars, bound.grid, bound.extents)

        def call() -> None:
            began = time.perf_counter()
            interpret(
                made,
                bound.buffers,
                bound.scalars,
                bound.grid,
                order=order,
                seed=seed,
                breakpoints=breakpoints,
            )
            self._note(made.name, began)

        self._plan.calls.append(call) if self._plan is not None else call()

    @contextmanager
    def plan(self) -> Iterator[HostPlan]:
        if self._plan is not None:
            raise DeviceError("a plan is being recorded already")
        self._plan = HostPlan()
        try:
            yield self._plan
        finally:
            self._plan = None

    def ir(self, kernel: Any, config: Config | None = None, **arguments: Any) -> Kernel:
        return specialised(kernel, arguments, config)[0]

    def finish(self, timeout: float | None = None) -> None:
        """Nothing to wait for."""

    def memory(self) -> dict[str, int]:
        return dict(self.account.held)

    @contextmanager
    def profile(self) -> Iterator[Profiler]:
        with attached(self) as profiler:
            yield profiler

    def close(self) -> None:
        """Nothing to give back."""

    def _note(self, name: str, began: float) -> None:
        if self.profiler is not None:
            self.profiler.measured.append(Timing(name, began, began, time.perf_counter()))


def copy_a8(source: A8, target: A8) -> None:
    """Overwrite the values of ``target``. Raises DeviceError for another shape."""
    if source.shape != target.shape:
        raise DeviceError(f"a8 of shape {source.shape} into {target.shape}")
    target.q[...], target.scale[...], target.sums[...] = source.q, source.scale, source.sums
