"""The devices of this machine as plain facts; opens none of them.

A ``DeviceInfo`` is what commands print and caches key on. Owns names, aliases and the order of
preference; the OpenCL objects behind an entry are found again by ``opencl_device``.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from platform import machine
from typing import TYPE_CHECKING, Any

from ferro.runtime import vendors

if TYPE_CHECKING:
    import pyopencl as cl

ALIASES = ("pocl", "intel", "intel-gpu", "rusticl", "oclgrind", "clover")
INTERPRETER = "interpreter"

# Lower is better. Intel's CPU runtime is preferred to PoCL: a small launch costs 12 us there and
# 65 us with PoCL, and int8 products are 1.4 times faster.
PREFERENCE = {"gpu": 0, "intel": 2, "pocl": 3, "cpu": 4, "rusticl": 5, INTERPRETER: 9}


@dataclass(frozen=True)
class DeviceInfo:
    """One device. ``kind`` is "gpu", "cpu" or "interpreter"; ``capabilities`` is the table that
    `ferro devices` prints (sizes in bytes)."""

    index: int
    alias: str
    name: str
    platform: str
    version: str
    driver: str
    kind: str
    capabilities: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def identity(self) -> str:
        """A name for files: changes when device, driver or platform change."""
        parts = (self.platform, self.version, self.name, self.driver, host_processor())
        return f"{self.alias}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"

    @property
    def rank(self) -> int:
        """The order of preference where the user names no device; lower is better."""
        if vendors.inside_oclgrind() and self.alias == "oclgrind":
            return -1
        if self.kind == "gpu":
            return PREFERENCE["gpu"]
        return PREFERENCE.get(self.alias, PREFERENCE["cpu"])

    def __str__(self) -> str:
        if self.kind == INTERPRETER:
            return f"{self.index}: {INTERPRETER} ({self.name})"
        return f"{self.index}: {self.alias} ({self.name}, {self.platform}, driver {self.driver})"


def devices(rusticl: bool = False) -> list[DeviceInfo]:
    """Every device that can be offered here, the interpreter last.

    ``rusticl`` offers Mesa's software device too (only before OpenCL is first used).
    """
    found = [describe(index, device) for index, device in enumerate(opencl_devices(rusticl))]
    return [*found, interpreter_info(len(found))]


def interpreter_info(index: int) -> DeviceInfo:
    import numpy

    return DeviceInfo(
        index,
        INTERPRETER,
        f"numpy {numpy.__version__}",
        "ferro",
        "",
        numpy.__version__,
        INTERPRETER,
    )


def opencl_devices(rusticl: bool = False) -> list[cl.Device]:
    """The OpenCL devices in a stable order; empty without OpenCL."""
    found = vendors.prepare(rusticl)
    if not found.pyopencl or pyopencl_problem():
        return []
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return []
    listed: list[cl.Device] = []
    for platform in sorted(platforms, key=lambda p: (str(p.name), str(p.version))):
        if alias_of_platform(platform.name) == "pocl" and not vendors.linker():
            continue
        try:
            listed += platform.get_devices()
        except cl.Error:
            continue
    return [device for device in listed if usable(device)]


@functools.cache
def pyopencl_problem() -> str:
    """Why an installed pyopencl cannot be used, or "". For use after ``vendors.prepare``."""
    try:
        import pyopencl as cl

        _ = cl.get_platforms, cl.Error
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def problems() -> tuple[str, ...]:
    """Sentences on runtimes that are installed but cannot serve, each with the remedy."""
    found = vendors.prepare()
    broken = pyopencl_problem() if found.pyopencl else ""
    if not broken:
        return found.notes
    sentence = (
        f"pyopencl is installed but cannot be used ({broken}): only the interpreter can run "
        f"({vendors.REINSTALL})"
    )
    return (sentence, *found.notes)


def usable(device: cl.Device) -> bool:
    return bool(device.available and device.compiler_available)


def alias_of_platform(platform: str) -> str:
    known = {
        "Portable Computing Language": "pocl",
        "Intel(R) OpenCL": "intel",
        "rusticl": "rusticl",
        "Oclgrind": "oclgrind",
        "Clover": "clover",
    }
    return known.get(platform, "")


def describe(index: int, device: cl.Device) -> DeviceInfo:
    platform = device.platform
    kind = kind_of(device)
    alias = alias_of_platform(platform.name)
    if kind == "gpu" and (alias == "intel" or "Intel" in platform.name):
        alias = "intel-gpu"
    if not alias:
        alias = platform.name.split()[0].lower()
    return DeviceInfo(
        index=index,
        alias=alias,
        name=" ".join(device.name.split()),
        platform=platform.name,
        version=platform.version,
        driver=device.driver_version,
        kind=kind,
        capabilities=capabilities(device),
    )


def kind_of(device: cl.Device) -> str:
    import pyopencl as cl

    software = "llvmpipe" in device.name or alias_of_platform(device.platform.name) == "oclgrind"
    return "gpu" if device.type & cl.device_type.GPU and not software else "cpu"


def capabilities(device: cl.Device) -> dict[str, Any]:
    """What the driver says of the device; what it can really do is for the probes to find."""
    return {
        "opencl": device.version,
        "compute units": device.max_compute_units,
        "clock MHz": device.max_clock_frequency,
        "memory": device.global_mem_size,
        "largest buffer": device.max_mem_alloc_size,
        "buffer alignment": max(1, device.mem_base_addr_align // 8),
        "local memory": device.local_mem_size,
        "largest work-group": device.max_work_group_size,
        "unified memory": bool(device.host_unified_memory),
        "extensions": sorted(device.extensions.split()),
    }


def host_processor() -> str:
    """The processor's name and vector extensions, since CPU runtimes compile for them."""
    return f"{processor_field('model name')} {' '.join(sorted(vector_extensions()))}"


def vector_extensions() -> frozenset[str]:
    """The AVX extensions of the host ("avx2", "avx512f", "avx512_vnni", "avx_vnni", ...)."""
    return frozenset(w for w in processor_field("flags").split() if w.startswith("avx"))


def processor_field(name: str) -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.split(":")[0].strip() == name:
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return machine() if name == "model name" else ""
