"""What is tuned: one kernel on one target with arguments of certain sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ferro import arguments
from ferro.arguments import Arguments
from ferro.codegen.program import Config, Target
from ferro.dsl import ir
from ferro.dsl.interpreter import interpret
from ferro.dsl.launch import Binding, bind
from ferro.measure import Request, declared
from ferro.runtime.configs import kernel_key, launch_sizes
from ferro.runtime.device import Device
from ferro.runtime.trials import Place


@dataclass(frozen=True)
class Problem:
    """``request`` names kernel, sizes and contents; its own config is not looked at."""

    request: Request
    target: Target

    @staticmethod
    def of(request: Request, device: Device) -> Problem:
        return Problem(request, request.target or device.target)

    @cached_property
    def default(self) -> Config:
        """The schedule that the kernel declares, with every constexpr named."""
        return Config(declared(self.request.definition))

    def kernel(self, config: Config) -> ir.Kernel:
        """The kernel specialised for ``config``. Raises CompileError."""
        return replace(self.request, config=config).kernel()

    def binding(self, config: Config) -> Binding:
        """The launch with this config: its grid and sizes."""
        return bind(self.kernel(config), self.arguments)

    def programs(self, config: Config) -> int:
        return math.prod(self.binding(config).grid)

    @cached_property
    def arguments(self) -> Arguments:
        """Made-up arguments; never to be written."""
        made = self.kernel(self.default)
        return arguments.make(made, self.request.sizes, self.request.values, self.request.seed)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return launch_sizes(self.kernel(self.default), self.binding(self.default))

    @cached_property
    def place(self) -> Place:
        return Place.of(kernel_key(self.request.definition), self.target.name, self.sizes)

    @property
    def name(self) -> str:
        return self.request.definition.name

    def __str__(self) -> str:
        return f"{self.name} {' '.join(f'{n}={v}' for n, v in sorted(self.sizes.items()))}"

    def expected(self) -> dict[str, Any]:
        """What every config must write, by buffer: the interpreter's result."""
        kernel = self.kernel(self.default)
        bound = bind(kernel, arguments.copy(self.arguments))
        interpret(kernel, bound.buffers, bound.scalars, bound.grid)
        return {name: bound.buffers[name] for name in arguments.written(kernel)}
