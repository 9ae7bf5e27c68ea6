"""What every device offers, OpenCL or not: buffers, launches, plans, and what a kernel becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro import codegen
from ferro.codegen.program import Config, Program, Target
from ferro.dsl.ir import Kernel
from ferro.dsl.quantised import Q8
from ferro.runtime import calls
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.profiler import Profiler

Chooser = Callable[[Any, Mapping[str, int], Target], Config | None]


class Device(ABC):
    """A device that is open. Close it, or use it in a ``with`` statement.

    ``chooser`` gives the config of a launch that names none, from the kernel's definition, the
    sizes of the launch and the target: the tuner's winner, or None for the kernel's default.
    """

    info: DeviceInfo
    chooser: Chooser | None = None

    @property
    def name(self) -> str:
        return self.info.alias

    @property
    @abstractmethod
    def target(self) -> Target:
        """How kernels are lowered here by default; probes the device on first use."""

    @abstractmethod
    def targets(self) -> tuple[Target, ...]:
        """Every target that this device can run, the default first."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, purpose: str = "io") -> Any:
        """An uninitialised buffer. Raises OutOfMemory."""

    @abstractmethod
    def array(self, data: npt.NDArray[Any], purpose: str = "io") -> Any:
        """A buffer with a copy of ``data``. Raises OutOfMemory."""

    @abstractmethod
    def weights(
        self,
        data: Q8,
        purpose: str = "weights",
        target: Target | None = None,
        config: Config | None = None,
    ) -> Any:
        """A q8 matrix in the layout that kernels for ``target`` and ``config`` read."""

    @abstractmethod
    def activations(self, rows: int, cols: int, purpose: str = "scratch") -> Any:
        """An a8 matrix of zeros."""

    @abstractmethod
    def run(
        self,
        kernel: Any,
        config: Config | None = None,
        target: Target | None = None,
        **arguments: Any,
    ) -> None:
        """Launch a kernel (a ``@kernel`` definition or an ``ir.Kernel``).

        Arguments are numpy arrays, ``Q8``/``A8``, buffers, numbers; constexprs go by name. With
        numpy arrays it returns when outputs are written into them; with buffers only, it returns
        at once. Raises dsl CompileError, BuildError, DeviceLost, OutOfMemory.
        """

    @abstractmethod
    def plan(self) -> Any:
        """A context in which ``run`` records launches to be replayed."""

    @abstractmethod
    def ir(self, kernel: Any, config: Config | None = None, **arguments: Any) -> Kernel:
        """The specialised IR of a launch."""

    def config_for(self, kernel: Any, target: Target | None = None, **arguments: Any) -> Config:
        """The config that ``run`` takes for these arguments if none is given."""
        return Config()

    @abstractmethod
    def finish(self, timeout: float | None = None) -> None:
        """Wait until everything launched is done. Raises DeviceLost."""

    @abstractmethod
    def memory(self) -> dict[str, int]:
        """Bytes held by purpose."""

    @abstractmethod
    def profile(self) -> Any:
        """A context that collects the device time of each launch in a ``Profiler``."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def program(
        self,
        kernel: Any,
        config: Config | None = None,
        target: Target | None = None,
        **arguments: Any,
    ) -> Program:
        """The OpenCL program of a kernel, freshly generated."""
        chosen = calls.settled(config)
        return codegen.generate(self.ir(kernel, chosen, **arguments), target or self.target, chosen)

    def source(
        self,
        kernel: Any,
        config: Config | None = None,
        target: Target | None = None,
        **arguments: Any,
    ) -> str:
        """The OpenCL C of a kernel."""
        return self.program(kernel, config, target, **arguments).source

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike, purpose: str = "io") -> Any:
        """A buffer of zeros."""
        return self.array(np.zeros(shape, dtype), purpose)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<device {self.info}>"


@contextmanager
def attached(owner: Any) -> Iterator[Profiler]:
    """A profiler on ``owner.profiler`` for the length of a ``with`` block."""
    before, profiler = owner.profiler, Profiler()
    owner.profiler = profiler
    try:
        yield profiler
    finally:
        owner.profiler = before
