"""The friendly call: from a kernel and its arguments to commands on the queue.

What a call needs is worked out once for each kernel, config and shape of arguments: specialised
kernel, checked bounds, compiled program, sizes, scratch, scalars. A call that was seen before only
sets buffers and enqueues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ferro.codegen import layouts, resolve
from ferro.codegen.program import Argument, Config, Entry, Target
from ferro.dsl import extents, ir, launch
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.runtime.buffers import Buffer
from ferro.runtime.calls import (
    Call,
    check_owner,
    check_recordable,
    has_host_arrays,
)
from ferro.runtime.errors import DeviceError
from ferro.runtime.plan import Launched, Plan, Recorder, Step
from ferro.runtime.proofs import Proofs

if TYPE_CHECKING:
    from ferro.runtime.opencl import OpenCLDevice

SCALARS: dict[str, Any] = {"i32": np.int32, "u32": np.uint32, "f32": np.float32}
REMEMBERED = 512

AnyKernel = Any  # a KernelDefinition or an ir.Kernel


@dataclass(frozen=True, eq=False)
class Launch:
    """A call that is ready for buffers. ``kept`` holds what its key refers to by identity."""

    steps: list[Step]
    buffers: tuple[str, ...]
    written: tuple[str, ...]
    kernel: ir.Kernel
    constants: frozenset[str]
    kept: tuple[Any, ...]

    def enqueue(self, arguments: Mapping[str, Any], device: OpenCLDevice) -> None:
        self.set_buffers(arguments)
        for step in self.steps:
            device.queue.enqueue(step.kernel, step.size, step.local, step.name)

    def set_buffers(self, arguments: Mapping[str, Any]) -> None:
        for step in self.steps:
            for index, name in step.buffers:
                step.kernel.set_arg(index, arguments[name].memory)

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are known at run time only."""
        return {n: v for n, v in arguments.items() if n not in self.constants and v is not None}

    def shares_memory(self, arguments: Mapping[str, Any]) -> bool:
        """True if two of the buffers lie in one allocation."""
        roots = {arguments[name].root for name in self.buffers}
        return len(roots) < len(self.buffers)


class Launcher:
    """Runs and records calls on one device."""

    def __init__(self, device: OpenCLDevice) -> None:
        self.device = device
        self._launches: OrderedDict[Any, Launch] = OrderedDict()
        self._scratch: dict[str, Buffer] = {}
        self._proofs = Proofs()
        self._recorder: Recorder[Plan] = Recorder()

    def run(self, call: Call) -> None:
        """Launch, or record if this thread is recording a plan."""
        kernel, arguments, config, target = call.kernel, call.arguments, call.config, call.target
        plan = self._recorder.plan
        if plan is not None:
            check_recordable(arguments)
            made = self._prepare(kernel, arguments, config, target)
            made.set_buffers(arguments)
            buffers = [arguments[name] for name in made.buffers]
            launched = Launched(made.kernel, made.given(arguments), len(made.steps))
            plan.add(made.steps, buffers, launched, made)
        elif has_host_arrays(arguments):
            self._run_staged(kernel, arguments, config, target)
        else:
            self._run(kernel, arguments, config, target)
            self.device.queue.flush()

    def recording(self) -> AbstractContextManager[Plan]:
        """Record this thread's calls into a plan instead of running them."""
        return self._recorder.recording(Plan(self.device.queue))

    def clear(self) -> None:
        """Forget every launch and give scratch memory back."""
        self._launches.clear()
        self._scratch.clear()

    def _run(
        self,
        kernel: AnyKernel,
        arguments: dict[str, Any],
        config: Config | None,
        target: Target | None,
    ) -> Launch:
        key = call_key(kernel, arguments, config, target)
        with self.device.queue.lock:
            found = self._launches.get(key)
            if found is None:
                found = self._launches[key] = self._prepare(kernel, arguments, config, target)
                if len(self._launches) > REMEMBERED:
                    self._launches.popitem(last=False)
            elif found.shares_memory(arguments):
                self._check_sharing(found, arguments)
            found.enqueue(arguments, self.device)
        return found

    def _run_staged(
        self,
        kernel: AnyKernel,
        arguments: dict[str, Any],
        config: Config | None,
        target: Target | None,
    ) -> None:
        """Copy host arrays in, launch, and copy what is written back."""
        chosen = self._bound(kernel, arguments, config, target)[0]
        staged = {n: self._stage(value, chosen, target) for n, value in arguments.items()}
        found = self._run(kernel, staged, chosen, target)
        self.device.queue.flush()
        for name in found.written:
            if staged[name] is not arguments[name]:
                fetch(staged[name], arguments[name])
        self.device.queue.finish()

    def _stage(self, value: Any, config: Config, target: Target | None) -> Any:
        if isinstance(value, np.ndarray):
            return self.device.array(value)
        if isinstance(value, (Q8, Q4)):
            return self.device.weights(value, "io", target, config)
        if isinstance(value, A8):
            buffer = self.device.activations(*value.shape, purpose="io")
            buffer.write(value)
            return buffer
        return value

    def _prepare(
        self,
        kernel: AnyKernel,
        arguments: dict[str, Any],
        config: Config | None,
        target: Target | None,
    ) -> Launch:
        """Everything that precedes setting buffers, for one shape of arguments."""
        wanted = target or self.device.target
        chosen, made, given, binding = self._bound(kernel, arguments, config, target)
        check_buffers(made, given, wanted, chosen, self.device)
        steps: list[Step] = []
        kept: list[Any] = [kernel, config, chosen]
        if not binding.empty:
            built = self.device.built(made, wanted, chosen)
            for entry in built.program.entries:
                steps += self._steps(entry, built.kernel(entry), binding.scalars, kept)
        return Launch(
            steps,
            tuple(buffer.name for buffer in made.buffers),
            tuple(buffer.name for buffer in made.buffers if buffer.access != "in"),
            made,
            frozenset(arguments) - frozenset(given),
            tuple(kept),
        )

    def config_for(
        self, kernel: AnyKernel, arguments: dict[str, Any], target: Target | None
    ) -> Config:
        """The config of a launch that names none."""
        return self._bound(kernel, arguments, None, target)[0]

    def _bound(
        self,
        kernel: AnyKernel,
        arguments: dict[str, Any],
        config: Config | None,
        target: Target | None,
    ) -> tuple[Config, ir.Kernel, dict[str, Any], launch.Binding]:
        """``Device.bound``, with every access proved to be in range."""
        chosen, made, given, binding = self.device.bound(kernel, arguments, config, target)
        self._proofs.check(made, binding)
        return chosen, made, given, binding

    def _steps(
        self, entry: Entry, kernel: Any, values: Mapping[str, int | float], kept: list[Any]
    ) -> list[Step]:
        """The entry as a step with scalars and scratch set; empty if it has no work."""
        whole = {name: value for name, value in values.items() if isinstance(value, int)}
        groups = [extents.evaluate(extent, whole) for extent in entry.groups]
        if 0 in groups:
            return []
        buffers = []
        for index, argument in enumerate(entry.arguments):
            if argument.kind == "buffer":
                buffers.append((index, argument.name))
            elif argument.kind == "scalar":
                kernel.set_arg(index, SCALARS[argument.dtype](values[argument.name]))
            else:
                scratch = self._scratch_for(argument, whole)
                kernel.set_arg(index, scratch.memory)
                kept.append(scratch)
        x, y, z = (g * n for g, n in zip(groups, entry.local, strict=True))
        return [Step(entry.name, kernel, (x, y, z), entry.local, tuple(buffers))]

    def _scratch_for(self, argument: Argument, values: Mapping[str, int]) -> Buffer:
        """Scratch that all launches share: they run in order, so none needs it for longer."""
        size = extents.evaluate(argument.bytes, values)
        held = self._scratch.get(argument.name)
        if held is None or held.nbytes < size:
            held = self._scratch[argument.name] = self.device.store.scratch(size)
        return held

    def _check_sharing(self, found: Launch, arguments: Mapping[str, Any]) -> None:
        launch.bind(found.kernel, found.given(arguments))


def call_key(
    kernel: AnyKernel, arguments: Mapping[str, Any], config: Config | None, target: Target | None
) -> Any:
    """Equal for calls that differ only in which buffers they use.

    A definition and a config count by identity: the launch keeps them alive.
    """
    parts: list[Any] = [id(kernel), id(config), target]
    for name, value in arguments.items():
        if type(value) is Buffer:
            parts.append((name, value.signature))
        elif type(value) is float:
            parts.append((name, value.hex()))
        else:
            known = value if isinstance(value, Hashable) else id(value)
            parts.append((name, type(value), known))
    return tuple(parts)


def check_buffers(
    kernel: ir.Kernel,
    given: Mapping[str, Any],
    target: Target,
    config: Config,
    device: OpenCLDevice,
) -> None:
    """Raise DeviceError for a buffer of another device or in another layout."""
    layout = q8_layout(target, config)
    for parameter in kernel.buffers:
        buffer = check_owner(parameter.name, given[parameter.name], device.store)
        wanted = (layout[0], layout[1] and buffer.format == "q8")
        if buffer.layout is not None and buffer.layout != wanted:
            raise DeviceError(
                f"`{parameter.name}` is packed for blocks of {buffer.layout[0]} rows"
                f"{' (biased)' if buffer.layout[1] else ''}, this launch reads blocks of "
                f"{layout[0]}{' (biased)' if layout[1] else ''}: "
                "make it with device.weights(..., target=..., config=...)"
            )


def q8_layout(target: Target, config: Config) -> tuple[int, bool]:
    """Rows a block, and whether weights are stored biased, as a config's kernels read them."""
    chosen = resolve(target, config)
    return (chosen.lanes, layouts.is_biased(chosen.dot))


def fetch(buffer: Buffer, value: Any) -> None:
    """Copy a buffer into the host array or ``A8`` that it was staged from."""
    if isinstance(value, A8):
        result = buffer.read()
        value.q[...], value.scale[...], value.sums[...] = result.q, result.scale, result.sums
    else:
        buffer.read_into(value)
