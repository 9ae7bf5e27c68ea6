"""What every device offers, OpenCL or not: buffers, launches, plans, and what a kernel becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from ferro import codegen
from ferro.codegen.program import Config, Program, Target
from ferro.dsl import bounds
from ferro.dsl.ir import Kernel
from ferro.dsl.launch import Binding
from ferro.dsl.quantised import Q4, Q8
from ferro.runtime import calls
from ferro.runtime.buffers import Buffer
from ferro.runtime.configs import launch_sizes
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.memory import Memory
from ferro.runtime.profiler import Profiler

Chooser = Callable[[Any, Mapping[str, int], Target], Config | None]


class Device(ABC):
    """A device that is open. Close it, or use it in a ``with`` statement.

    ``chooser`` gives the config of a launch that names none, from the kernel's definition, the
    sizes of the launch and the target: the tuner's winner, or None for the kernel's default.
    """

    info: DeviceInfo
    store: Memory
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

    def aimed(self, target: Target | str | None) -> Target | None:
        """The target that a kind ("simd", "simt") or a whole name means here. Raises CallError."""
        if target is None or isinstance(target, Target):
            return target
        return calls.target_named(target, self.targets())

    def empty(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike, purpose: str = "io"
    ) -> Buffer:
        """An uninitialised buffer. Raises OutOfMemory, CallError for no shape or dtype of one."""
        return self.store.array(shape, dtype, purpose)

    def zeros(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike, purpose: str = "io"
    ) -> Buffer:
        """A buffer of zeros. Raises OutOfMemory, CallError."""
        return self.store.zeros(shape, dtype, purpose)

    def array(self, data: npt.NDArray[Any], purpose: str = "io") -> Buffer:
        """A buffer with a copy of ``data``. Raises OutOfMemory, CallError."""
        return self.store.copy(data, purpose)

    @abstractmethod
    def weights(
        self,
        data: Q8 | Q4,
        purpose: str = "weights",
        target: Target | str | None = None,
        config: Config | Mapping[str, int] | None = None,
    ) -> Buffer:
        """A q8 matrix in the layout that kernels for ``target`` and ``config`` read."""

    def activations(self, rows: int, cols: int, purpose: str = "scratch") -> Buffer:
        """An a8 matrix of zeros."""
        return self.store.activations(rows, cols, purpose)

    def run(
        self,
        kernel: Any,
        /,
        *positional: Any,
        config: Config | Mapping[str, int] | None = None,
        target: Target | str | None = None,
        **arguments: Any,
    ) -> None:
        """Launch a kernel (a ``@kernel`` definition or an ``ir.Kernel``).

        Arguments are numpy arrays, ``Q8``/``A8``, buffers, numbers and constexprs, by name or in
        the order of the kernel's parameters; a config, and a target after it, may stand first. With
        numpy arrays it returns when outputs are written into them; with buffers only, it returns
        at once. Raises dsl CompileError, CallError, BuildError, DeviceLost, OutOfMemory.
        """
        self.store.check_open()
        self._launch(self._call(kernel, positional, config, target, arguments))

    @abstractmethod
    def plan(self) -> Any:
        """A context in which ``run`` records launches to be replayed."""

    def ir(
        self,
        kernel: Any,
        /,
        *positional: Any,
        config: Config | Mapping[str, int] | None = None,
        **arguments: Any,
    ) -> Kernel:
        """The specialised IR of a launch."""
        call = self._call(kernel, positional, config, None, arguments)
        return calls.specialised(call.kernel, call.arguments, call.config)[0]

    def config_for(
        self,
        kernel: Any,
        /,
        *positional: Any,
        target: Target | str | None = None,
        **arguments: Any,
    ) -> Config:
        """The config that ``run`` takes for these arguments if none is given."""
        return self._chosen(self._call(kernel, positional, None, target, arguments))

    @abstractmethod
    def finish(self, timeout: float | None = None) -> None:
        """Wait until everything launched is done. Raises DeviceLost."""

    def memory(self) -> dict[str, int]:
        """Bytes held by purpose."""
        return dict(self.store.account.held)

    @abstractmethod
    def profile(self) -> Any:
        """A context that collects the device time of each launch in a ``Profiler``."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; later uses of the device and its buffers raise DeviceError."""

    def bound(
        self,
        kernel: Any,
        arguments: Mapping[str, Any],
        config: Config | None,
        target: Target | None,
    ) -> tuple[Config, Kernel, dict[str, Any], Binding]:
        """The config that counts, the specialised kernel, its arguments and their binding."""
        chosen = calls.settled(config)
        made, given = calls.specialised(kernel, arguments, chosen)
        binding = bounds.bind(made, given)
        if config is None:
            better = self._choice(kernel, arguments, made, binding, target)
            if better is not None:
                return self.bound(kernel, arguments, better, target)
        return chosen, made, given, binding

    def _choice(
        self,
        kernel: Any,
        arguments: Mapping[str, Any],
        made: Kernel,
        binding: Binding,
        target: Target | None,
    ) -> Config | None:
        """The chooser's config; None where the call or its kernel leaves nothing to choose."""
        if self.chooser is None or kernel is made or not made.schedule.isdisjoint(arguments):
            return None
        return self.chooser(kernel, launch_sizes(made, binding), target or self.target)

    def program(
        self,
        kernel: Any,
        /,
        *positional: Any,
        config: Config | Mapping[str, int] | None = None,
        target: Target | str | None = None,
        **arguments: Any,
    ) -> Program:
        """The OpenCL program of a kernel, freshly generated."""
        call = self._call(kernel, positional, config, target, arguments)
        chosen = calls.settled(call.config)
        made = calls.specialised(call.kernel, call.arguments, chosen)[0]
        return codegen.generate(made, call.target or self.lowered_for(), chosen)

    def source(
        self,
        kernel: Any,
        /,
        *positional: Any,
        config: Config | Mapping[str, int] | None = None,
        target: Target | str | None = None,
        **arguments: Any,
    ) -> str:
        """The OpenCL C of a kernel."""
        found = self.program(kernel, *positional, config=config, target=target, **arguments)
        return found.source

    def lowered_for(self) -> Target:
        """The target of a program that names none. Raises CallError where it must be named."""
        return self.target

    @abstractmethod
    def _launch(self, call: calls.Call) -> None:
        """Run, or record, what ``call`` describes."""

    def _chosen(self, call: calls.Call) -> Config:
        return self.bound(call.kernel, call.arguments, call.config, call.target)[0]

    def _call(
        self,
        kernel: Any,
        positional: Sequence[Any],
        config: Any,
        target: Any,
        arguments: dict[str, Any],
    ) -> calls.Call:
        if not positional and config is None and target is None:
            return calls.Call(kernel, arguments, None, None)
        return calls.call(kernel, positional, config, target, arguments, self.targets)

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
