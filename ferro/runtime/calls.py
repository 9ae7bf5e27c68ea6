"""Takes a friendly call apart: constexprs, absent optional buffers, runtime arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferro.codegen.program import Config
from ferro.dsl import ir
from ferro.dsl.kernel import KernelDefinition


def specialised(
    kernel: Any, arguments: Mapping[str, Any], config: Config | None
) -> tuple[ir.Kernel, dict[str, Any]]:
    """The specialised kernel of a call and its runtime arguments.

    ``kernel`` is an ``ir.Kernel``, or a ``@kernel`` definition, whose constexprs are taken out of
    ``arguments`` or, where they are an extent of an array, read off its shape. An optional buffer
    that is missing or None is absent. Raises CompileError, TypeError for something that is no
    kernel or no config.
    """
    schedule = settled(config).constants
    given = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(kernel, ir.Kernel):
        return kernel, given
    if not isinstance(kernel, KernelDefinition):
        raise TypeError(f"a function under @kernel is launched, not a {type(kernel).__name__}")
    parameters = kernel.parameters
    constants = {n: given.pop(n) for n in list(given) if is_constant(parameters.get(n))}
    constants = {**kernel.deduced(given), **constants, **schedule}
    absent = [n for n, parameter in parameters.items() if parameter.optional and n not in given]
    return kernel.specialise(absent=absent, **constants), given


def settled(config: Config | None) -> Config:
    """``config``, or the default one for None. Raises TypeError for anything else."""
    if config is None:
        return Config()
    if not isinstance(config, Config):
        raise TypeError(
            f"`config` is a {type(config).__name__}: a schedule is written "
            "Config({'BLOCK': 64}), arguments of a kernel go by name"
        )
    return config


def is_constant(parameter: Any) -> bool:
    return parameter is not None and parameter.kind in ("const", "schedule")
