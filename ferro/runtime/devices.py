"""Devices by name: ``devices()`` lists them, ``open_device(name)`` opens one.

A name is an alias (pocl, intel, rusticl, oclgrind, interpreter), an index of the list, or a part
of a device's or platform's name. Without a name ``FERRO_DEVICE`` counts, else the best device.
"""

from __future__ import annotations

import os

from ferro.runtime.device import Device
from ferro.runtime.errors import CallError, NoSuchDevice
from ferro.runtime.listing import INTERPRETER, DeviceInfo, devices, interpreter_info, problems
from ferro.runtime.vendors import limit_threads

__all__ = ["DeviceInfo", "devices", "find", "open_device"]


def open_device(
    name: str | int | None = None, threads: int | None = None, timeout: float = 60.0
) -> Device:
    """Open a device.

    ``threads`` limits CPU devices (default ``FERRO_THREADS``, else all); it can be chosen once in a
    process. ``timeout`` is how many seconds a wait may take before the device counts as lost.
    Raises NoSuchDevice for a name that fits none or several devices, DeviceUnusable if it cannot
    be opened, CallError for what is no name, number of threads or time.
    """
    if not (name is None or isinstance(name, str | int)):
        raise CallError(f"a device goes by name or index, not by a {type(name).__name__}")
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise CallError(f"`timeout` is seconds above 0, not {timeout!r}")
    wanted = str(name if name is not None else os.environ.get("FERRO_DEVICE", "")).strip()
    count = threads if threads is not None else _threads_from_environment()
    if wanted == INTERPRETER:
        return _interpreter(interpreter_info(0))
    if count is not None:
        limit_threads(count)
    info = find(wanted)
    if info.kind == INTERPRETER:
        return _interpreter(info)
    return open_info(info, timeout)


def open_info(info: DeviceInfo, timeout: float = 60.0) -> Device:
    """Open a listed OpenCL device, with tuned configs for launches that name none."""
    from ferro.runtime.configs import Chooser
    from ferro.runtime.opencl import OpenCLDevice

    device = OpenCLDevice(info, timeout)
    device.chooser = Chooser(info)
    return device


def find(name: str = "") -> DeviceInfo:
    """The device that ``name`` means; the best one for an empty name."""
    listed = devices(rusticl=name == "rusticl")
    if not name:
        return min(listed, key=lambda info: info.rank)
    if name.isdigit() and int(name) < len(listed):
        return listed[int(name)]
    lowered = name.lower()
    exact = [info for info in listed if info.alias == lowered]
    found = exact or [info for info in listed if lowered in f"{info.name} {info.platform}".lower()]
    if len(found) == 1:
        return found[0]
    raise NoSuchDevice(_complaint(name, found, listed))


def _complaint(name: str, found: list[DeviceInfo], listed: list[DeviceInfo]) -> str:
    problem = f"`{name}` means several devices" if found else f"there is no device `{name}`"
    lines = [f"{problem}; choose one by its number:", *(f"  {info}" for info in found or listed)]
    if not found:
        lines[0] = f"{problem}; there are:"
        lines += [f"  note: {note}" for note in problems()]
    if name == "rusticl" and not found:
        lines.append(
            "  note: Mesa's software device is offered if it is the first that a process names, or "
            "with RUSTICL_ENABLE=llvmpipe"
        )
    return "\n".join(lines)


def _interpreter(info: DeviceInfo) -> Device:
    from ferro.runtime.configs import Chooser
    from ferro.runtime.host import InterpreterDevice

    device = InterpreterDevice(info)
    device.chooser = Chooser(info)
    return device


def _threads_from_environment() -> int | None:
    text = os.environ.get("FERRO_THREADS", "")
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise CallError(f"FERRO_THREADS must be a whole number above 0, not {text!r}")
    return int(text)


def missing() -> tuple[str, ...]:
    """Sentences on runtimes that are installed but cannot serve, with the remedy."""
    return problems()
