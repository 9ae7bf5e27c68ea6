"""Takes a friendly call apart: positional arguments, configs, targets, constexprs, buffers.

The same for every device; what is wrong with the call itself is a ``CallError`` that says how to
write it, what is wrong with its arguments a ``LaunchError`` at the kernel's declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ferro.codegen.program import DOT_LOWERINGS, Config, Target
from ferro.dsl import ir, launch
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.runtime.buffers import Buffer
from ferro.runtime.errors import CallError, DeviceError
from ferro.runtime.memory import Memory

HOST_FORMS = (np.ndarray, Q8, Q4, A8)
HOW = "a schedule is written Config({'BLOCK': 64}), or just {'BLOCK': 64}"


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel (a definition or an ``ir.Kernel``), its arguments by name, and how to lower it."""

    kernel: Any
    arguments: dict[str, Any]
    config: Config | None
    target: Target | None


def call(
    kernel: Any,
    positional: Sequence[Any],
    config: Any,
    target: Any,
    named: dict[str, Any],
    offered: Callable[[], Iterable[Target]],
) -> Call:
    """The parts of ``run(kernel, *positional, config=..., target=..., **named)``.

    A config and a target may stand by position between the kernel and its arguments, which come in
    the order of its parameters. ``offered`` gives the targets that a name may mean. Raises
    CallError, LaunchError for too many arguments or one that is given twice.
    """
    rest = list(positional)
    if rest and (rest[0] is None or isinstance(rest[0], (Config, Mapping))):
        config = _once("config", config, rest.pop(0))
        if rest and (rest[0] is None or isinstance(rest[0], str)):
            target = _once("target", target, rest.pop(0))
    if rest and isinstance(rest[0], Target):
        target = _once("target", target, rest.pop(0))
    if rest:
        named = launch.collect(_definition(kernel), rest, named)
    if config is not None and not isinstance(config, Config):
        config = _config(config)
    if target is not None and not isinstance(target, Target):
        target = target_named(target, offered())
    return Call(kernel, named, config, target)


def specialised(
    kernel: Any, arguments: Mapping[str, Any], config: Config | None
) -> tuple[ir.Kernel, dict[str, Any]]:
    """The specialised kernel of a call and its runtime arguments.

    ``kernel`` is an ``ir.Kernel``, or a ``@kernel`` definition, whose constexprs are taken out of
    ``arguments`` or, where they are an extent of an array, read off its shape. An optional buffer
    that is missing or None is absent. Raises CompileError, CallError for something that is no
    kernel or no config.
    """
    schedule = settled(config).constants
    given = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(kernel, ir.Kernel):
        return kernel, given
    parameters = _definition(kernel).parameters
    constants = {n: given.pop(n) for n in list(given) if is_constant(parameters.get(n))}
    twice = [n for n in schedule if n in constants]
    if twice:
        raise CallError(f"`{twice[0]}` is given by name and in the config: drop one")
    constants = {**kernel.deduced(given), **constants, **schedule}
    absent = [n for n, parameter in parameters.items() if parameter.optional and n not in given]
    return kernel.specialise(absent=absent, **constants), given


def settled(config: Config | Mapping[str, int] | None) -> Config:
    """``config``, or the default one for None. Raises CallError for a field of a wrong type."""
    if config is None:
        return Config()
    made = config if isinstance(config, Config) else _config(config)
    problem = _problem(made)
    if problem:
        raise CallError(f"a config's {problem}; {HOW}")
    return made


def target_named(text: object, offered: Iterable[Target]) -> Target:
    """The first of ``offered`` of that kind or name, else the target of that whole name."""
    if not isinstance(text, str):
        raise CallError(
            f"`target` is a {type(text).__name__}: name a kind (simd, simt) or pass one of "
            "device.targets()"
        )
    found = next((target for target in offered if text in (target.kind, target.name)), None)
    return found or parse_target(text)


def parse_target(text: str) -> Target:
    """A target by its whole name, such as "simt-16-dp4a-block_read". Raises CallError."""
    kind, *rest = text.split("-")
    lanes = rest[0] if rest else "16"
    dot = rest[1] if len(rest) > 1 else ("dp4a" if kind == "simt" else "emulated")
    if kind not in ("simd", "simt") or not lanes.isdigit() or dot not in DOT_LOWERINGS:
        raise CallError(
            f"`{text}` is no target; one is simd, simt or KIND-LANES-DOT, such as simt-16-dp4a"
        )
    return Target(kind, int(lanes), dot, features=frozenset(rest[2:]))


def has_host_arrays(arguments: Mapping[str, Any]) -> bool:
    """True if an argument must be copied to the device first."""
    return any(isinstance(value, HOST_FORMS) for value in arguments.values())


def check_recordable(arguments: Mapping[str, Any]) -> None:
    """Raise DeviceError for arguments that a plan cannot hold."""
    if has_host_arrays(arguments):
        raise DeviceError("a plan takes buffers of the device, not host arrays")


def check_owner(name: str, value: Any, store: Memory) -> Buffer:
    """``value`` as a buffer of ``store`` that is alive. Raises DeviceError."""
    if not isinstance(value, Buffer) or value.owner is not store:
        raise DeviceError(f"argument `{name}` is not a buffer of {store.name}")
    _ = value.memory
    return value


def is_constant(parameter: Any) -> bool:
    return parameter is not None and parameter.kind in ("const", "schedule")


def _definition(kernel: Any) -> KernelDefinition:
    if isinstance(kernel, ir.Kernel):
        raise CallError("the arguments of an `ir.Kernel` go by name")
    if not isinstance(kernel, KernelDefinition):
        raise CallError(f"a function under @kernel is launched, not a {type(kernel).__name__}")
    return kernel


def _once(name: str, given: Any, placed: Any) -> Any:
    if given is not None and placed is not None:
        raise CallError(f"`{name}` is given by position and by name: drop one")
    return given if placed is None else placed


def _config(value: Any) -> Config:
    if not isinstance(value, Mapping):
        raise CallError(f"`config` is a {type(value).__name__}: {HOW}")
    try:
        # equal mappings are one config: launches are remembered by its identity
        return _constants(tuple(sorted(value.items())))
    except TypeError:
        raise CallError(f"a config maps names to whole numbers, not {dict(value)!r}") from None


@lru_cache(maxsize=256, typed=True)
def _constants(items: tuple[tuple[str, int], ...]) -> Config:
    return Config(dict(items))


def _problem(config: Config) -> str:
    """What is wrong with the types of a config's fields, or ""."""
    if not isinstance(config.constants, Mapping):
        return f"constants are a {type(config.constants).__name__}, not names and whole numbers"
    for name, value in config.constants.items():
        if not isinstance(name, str) or not _is_whole(value):
            return f"constant {name!r} is {value!r}, not a whole number"
    if config.lanes is not None and not _is_whole(config.lanes):
        return f"lanes are {config.lanes!r}, not a whole number"
    for name in ("split", "group"):
        value = getattr(config, name)
        if not _is_whole(value):
            return f"{name} is {value!r}, not a whole number"
    if not isinstance(config.lane_axis, tuple) or not all(
        isinstance(label, str) for label in config.lane_axis
    ):
        return f"lane_axis is {config.lane_axis!r}, not a tuple of labels such as ('n',)"
    if config.dot is not None and not isinstance(config.dot, str):
        return f"dot is {config.dot!r}, not one of {', '.join(DOT_LOWERINGS)}"
    if not isinstance(config.prefetch, bool):
        return f"prefetch is {config.prefetch!r}, not True or False"
    return ""


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
