"""What can go wrong on a device, as exceptions that say what to do about it.

``exit_code`` is the code a command ends with: 1 failed, 2 wrong use, 3 does not fit in memory.
"""

from __future__ import annotations


class DeviceError(RuntimeError):
    """Base of everything the runtime raises on purpose."""

    exit_code = 1


class CallError(DeviceError, TypeError):
    """A call that is not written as it should be; the message says how."""

    exit_code = 2


class NoSuchDevice(DeviceError):
    """A device name that fits no device, or more than one."""

    exit_code = 2


class DeviceUnusable(DeviceError):
    """A device that is there but cannot be opened or cannot run programs."""


class BuildError(DeviceError):
    """The vendor's compiler refused a generated program.

    ``log`` is its whole output; positions in it are those of the kernel's own source file.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str]]:
        return (BuildError, (str(self), self.log))


class DeviceLost(DeviceError):
    """The device stopped answering or reported a failure; it must be opened again."""


class OutOfMemory(DeviceError):
    """An allocation that does not fit, with the numbers."""

    exit_code = 3


class LimitError(DeviceError):
    """A program that asks for more than the device has (work-group size, local memory)."""

    exit_code = 2
