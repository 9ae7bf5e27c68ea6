"""Running a kernel on made-up arguments, on a device and in the interpreter: are the bits equal?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ferro import arguments
from ferro.arguments import Arguments
from ferro.codegen.program import Config, Target
from ferro.dsl import ir
from ferro.dsl.quantised import A8, Q4, Q8

if TYPE_CHECKING:
    from ferro.dsl.kernel import KernelDefinition
    from ferro.runtime.device import Device

INTERPRETER = "interpreter"


@dataclass(frozen=True)
class Request:
    """What to launch: a kernel, its constexprs, the sizes and contents of its arguments, and how
    to lower it (default config and target where None). Optional buffers are left out unless their
    names are in ``present``."""

    definition: KernelDefinition
    sizes: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    config: Config | None = None
    target: Target | None = None
    seed: int = 0

    def kernel(self) -> ir.Kernel:
        """The specialised kernel. Raises CompileError."""
        schedule = self.config.constants if self.config else {}
        parameters = self.definition.parameters.values()
        absent = [p.name for p in parameters if p.optional and p.name not in self.present]
        return self.definition.specialise(absent=absent, **{**self.constants, **schedule})

    def arguments(self) -> Arguments:
        return arguments.make(self.kernel(), self.sizes, self.values, self.seed)

    def settled(self, device: Device, given: Arguments) -> Request:
        """The same with the config that a launch of these arguments on ``device`` takes."""
        if self.config is not None:
            return self
        chosen = device.config_for(self.definition, self.target, **self.constants, **given)
        return replace(self, config=chosen)

    def config_name(self) -> str:
        """The config with every schedule constexpr, such as "BM=8 BN=64 split=2"."""
        chosen = self.config or Config()
        constants = {**declared(self.definition), **chosen.constants}
        full = replace(chosen, constants=constants)
        is_default = full == Config(declared(self.definition)) and constants
        return f"{full} (default)" if is_default else str(full)

    def run(self, device: Device, given: Arguments) -> None:
        """One launch with these arguments (numpy arrays or buffers of the device)."""
        device.run(
            self.definition, config=self.config, target=self.target, **self.constants, **given
        )


def declared(definition: KernelDefinition) -> dict[str, int]:
    """The schedule that a kernel's text declares: the value of each of its constexprs."""
    return {
        name: int(p.choices[0] if p.default is None else p.default)
        for name, p in definition.schedule.items()
    }


@dataclass(frozen=True)
class Comparison:
    """One launch on a device and in the interpreter. ``differing`` counts elements by output."""

    kernel: str
    device: str
    sizes: dict[str, int]
    config: str
    target: str
    differing: dict[str, int]
    seconds: float
    interpreter_seconds: float
    bytes: int

    @property
    def equal(self) -> bool:
        return not any(self.differing.values())

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


def compare(request: Request, device: Device, reference: Device) -> Comparison:
    """Runs ``request`` on both devices from equal arguments and compares every bit written.

    The first launch on ``device`` compiles; ``seconds`` is the device time of the second.
    """
    made = request.arguments()
    request = request.settled(device, made)
    kernel = request.kernel()
    here, there = arguments.copy(made), arguments.copy(made)
    request.run(device, here)
    started = time.perf_counter()
    request.run(reference, there)
    interpreted = time.perf_counter() - started
    outputs = arguments.written(kernel)
    return Comparison(
        kernel=kernel.name,
        device=str(device.info),
        sizes=arguments.dimensions(kernel, request.sizes),
        config=request.config_name(),
        target=target_name(request, device),
        differing={name: arguments.differing(here[name], there[name]) for name in outputs},
        seconds=_device_seconds(request, device, arguments.copy(made)),
        interpreter_seconds=interpreted,
        bytes=arguments.traffic(kernel, made),
    )


def target_name(request: Request, device: Device) -> str:
    if device.info.kind == INTERPRETER:
        return INTERPRETER
    return (request.target or device.target).name


def _device_seconds(request: Request, device: Device, given: Arguments) -> float:
    if device.info.kind == INTERPRETER:
        started = time.perf_counter()
        request.run(device, given)
        return time.perf_counter() - started
    held = uploaded(request, device, given)
    with device.profile() as profiler:
        request.run(device, held)
    return sum(timing.seconds for timing in profiler.timings())


def uploaded(request: Request, device: Device, given: Arguments) -> Arguments:
    """The arguments in memory of the device."""
    return {n: upload(device, v, request.target, request.config) for n, v in given.items()}


def upload(device: Device, value: Any, target: Target | None, config: Config | None) -> Any:
    """One argument in memory of the device; numbers stay as they are."""
    if isinstance(value, (Q8, Q4)):
        return device.weights(value, target=target, config=config)
    if isinstance(value, A8):
        held = device.activations(value.rows, value.cols)
        held.write(value)
        return held
    return device.array(value) if hasattr(value, "dtype") and value.shape else value
