"""Devices, buffers, program cache, launches: everything that touches OpenCL.

``open_device`` and ``devices`` are the way in. Importing this package loads no OpenCL.
"""

from ferro.runtime.devices import devices, open_device
from ferro.runtime.errors import (
    BuildError,
    CallError,
    DeviceError,
    DeviceLost,
    DeviceUnusable,
    LimitError,
    NoSuchDevice,
    OutOfMemory,
)
from ferro.runtime.listing import DeviceInfo

__all__ = [
    "BuildError",
    "CallError",
    "DeviceError",
    "DeviceInfo",
    "DeviceLost",
    "DeviceUnusable",
    "LimitError",
    "NoSuchDevice",
    "OutOfMemory",
    "devices",
    "open_device",
]
