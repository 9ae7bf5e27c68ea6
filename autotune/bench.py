"""Running configs of one kernel on a device that is open in this process: bits, then times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ferro import arguments
from ferro.arguments import Arguments
from ferro.codegen.program import Config, Target
from ferro.dsl import ir
from ferro.dsl.quantised import Q4, Q8
from ferro.measure import upload
from ferro.runtime.device import Device

FOOTPRINT = 512 << 20
MOST_COPIES = 64
MOST_LAUNCHES = 64


@dataclass(eq=False)
class Runnable:
    """A config that gave the right bits, ready to be timed."""

    kernel: ir.Kernel
    config: Config
    seconds: float


@dataclass(eq=False)
class Bench:
    """Arguments of one problem on ``device``.

    Bits are checked on outputs of the trial's own. Weights lie there many times and are taken in
    turn, as those of a model's layers are: no cache holds them from the launch before.
    """

    device: Device
    target: Target
    arguments: Arguments
    expected: Mapping[str, Any]
    _inputs: Arguments = field(default_factory=dict)
    _outputs: Arguments = field(default_factory=dict)
    _weights: list[Arguments] = field(default_factory=list)
    _ready: dict[str, Runnable] = field(default_factory=dict)
    _turn: int = 0

    def check(self, kernel: ir.Kernel, config: Config) -> dict[str, int]:
        """Launch once on fresh outputs; the elements of each that differ from the interpreter's.

        Where none does the config can be timed. Raises DeviceError, ValueError.
        """
        outputs = self._new_outputs()
        with self.device.profile() as profiler:
            self._launch(kernel, config, outputs)
        differing = {
            name: arguments.differing(outputs[name].read(), value)
            for name, value in self.expected.items()
        }
        if not any(differing.values()):
            seconds = sum(timing.seconds for timing in profiler.timings())
            self._ready[str(config)] = Runnable(kernel, config, seconds)
        return differing

    def knows(self, config: Config) -> bool:
        return str(config) in self._ready

    def time(self, config: Config, seconds: float) -> list[float]:
        """Device time of launches for about ``seconds``, at least of one."""
        chosen = self._ready[str(config)]
        count = int(seconds / chosen.seconds) if chosen.seconds > 0 else MOST_LAUNCHES
        launches = min(max(1, count), MOST_LAUNCHES)
        outputs = self._restored(chosen.kernel)
        with self.device.profile() as profiler:
            for _ in range(launches):
                self._launch(chosen.kernel, chosen.config, outputs)
        found = by_launch([timing.seconds for timing in profiler.timings()], launches)
        chosen.seconds = sum(found) / launches
        return found

    def _launch(self, kernel: ir.Kernel, config: Config, outputs: Arguments) -> None:
        given = {**self._shared(), **outputs, **self._next_weights()}
        self.device.run(kernel, config, self.target, **given)

    def _shared(self) -> Arguments:
        """What no launch writes, but for the weights."""
        if not self._inputs:
            self._inputs = {
                name: upload(self.device, value, self.target, None)
                for name, value in self.arguments.items()
                if name not in self.expected and not isinstance(value, (Q8, Q4))
            }
        return self._inputs

    def _new_outputs(self) -> Arguments:
        return {
            name: upload(self.device, self.arguments[name], self.target, None)
            for name in self.expected
        }

    def _restored(self, kernel: ir.Kernel) -> Arguments:
        """Outputs for timing; those that a kernel changes in place have their first values."""
        self._outputs = self._outputs or self._new_outputs()
        for buffer in kernel.buffers:
            if buffer.access == "inout":
                self._outputs[buffer.name].write(self.arguments[buffer.name])
        return self._outputs

    def _next_weights(self) -> Arguments:
        if not self._weights:
            self._weights = [self._upload_weights() for _ in range(self._copies())]
        self._turn = (self._turn + 1) % len(self._weights)
        return self._weights[self._turn]

    def _upload_weights(self) -> Arguments:
        return {
            name: upload(self.device, value, self.target, None)
            for name, value in self.arguments.items()
            if isinstance(value, (Q8, Q4))
        }

    def _copies(self) -> int:
        size = sum(v.nbytes for v in self.arguments.values() if isinstance(v, (Q8, Q4)))
        memory = self.device.info.capabilities.get("memory", FOOTPRINT)
        wanted = min(FOOTPRINT, memory // 8) / size if size else 1
        return min(max(1, math.ceil(wanted)), MOST_COPIES)


def by_launch(commands: list[float], launches: int) -> list[float]:
    """Seconds of each launch, which is as many commands as any other."""
    each = max(1, len(commands) // launches)
    return [sum(commands[i : i + each]) for i in range(0, len(commands), each)]
