"""From a ``Program`` to kernels on one device: the vendor's compiler, its binaries and its log."""

from __future__ import annotations

import functools
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferro.codegen.footprint import local_memory
from ferro.codegen.program import Entry, Program, Target
from ferro.runtime.errors import BuildError, LimitError
from ferro.runtime.listing import DeviceInfo

if TYPE_CHECKING:
    import pyopencl as cl

    from ferro.runtime.probes import Findings

# Compilers print "file:line:col: error: text", PoCL "error: file:line:col: text"; the file is the
# one of the last #line.
_ERROR = re.compile(r"^(error: )?[^\s:][^:\n]*:\d+:\d+: (?(1)|(fatal )?error)")


@dataclass(frozen=True, eq=False)
class Built:
    """A program ready to run on one device."""

    program: Program
    compiled: cl._cl._Program

    def kernel(self, entry: Entry) -> cl.Kernel:
        """A new kernel object, which holds arguments of its own."""
        import pyopencl as cl

        _remember_invokers()
        return cl.Kernel(self.compiled, entry.name)

    def binary(self) -> bytes:
        import pyopencl as cl

        return bytes(self.compiled.get_info(cl.program_info.BINARIES)[0])

    def log(self) -> str:
        """What the vendor's compiler said, which can be empty."""
        import pyopencl as cl

        device = self.compiled.get_info(cl.program_info.DEVICES)[0]
        return build_log(self.compiled, device)


@functools.cache
def _remember_invokers() -> None:
    """Let pyopencl write the Python code of a kernel's call once for each name and number of
    arguments, not once for each kernel object: that took 0.15 s of a plan of 274 launches."""
    from pyopencl import invoker

    name = "_generate_enqueue_and_set_args_module"
    if hasattr(invoker, name):
        setattr(invoker, name, functools.cache(getattr(invoker, name)))


def device_options(info: DeviceInfo, target: Target) -> tuple[str, ...]:
    """Build options that a device's compiler needs besides a program's own.

    Private arrays are registers on a GPU only: elsewhere unrolling them costs the compiler
    minutes. llvmpipe leaves long loops early, so its loops stay short.
    """
    cpu = info.kind == "cpu" and info.alias not in ("rusticl", "clover")
    return ("-DUNROLL=",) if cpu and target.kind == "simt" else ()


def from_source(
    context: cl.Context, device: cl.Device, program: Program, further: tuple[str, ...] = ()
) -> Built:
    """Compile a program, with ``further`` options. Raises BuildError with the compiler's log."""
    import pyopencl as cl

    compiled = cl._cl._Program(context, program.source)
    options = " ".join([*program.options, *further]).encode()
    try:
        compiled._build(options, [device])
    except cl.Error as error:
        log = build_log(compiled, device)
        raise BuildError(explain(program, log or str(error)), log) from None
    return Built(program, compiled)


def from_binary(
    context: cl.Context, device: cl.Device, program: Program, binary: bytes
) -> Built | None:
    """The program from an earlier binary, or None if the driver does not take it."""
    import pyopencl as cl

    try:
        compiled = cl._cl._Program(context, [device], [binary])
        compiled._build(b"", [device])
        found = compiled.get_info(cl.program_info.KERNEL_NAMES).split(";")
    except cl.Error:
        return None
    if any(entry.name not in found for entry in program.entries):
        return None
    return Built(program, compiled)


def build_log(compiled: cl._cl._Program, device: cl.Device) -> str:
    import pyopencl as cl

    try:
        return str(compiled.get_build_info(device, cl.program_build_info.LOG)).strip("\0\n ")
    except cl.Error:
        return ""


def explain(program: Program, log: str) -> str:
    """A short message from a long log: the errors first, at their places in the kernel's file."""
    names = ", ".join(entry.name for entry in program.entries)
    errors = [line.strip() for line in log.splitlines() if _ERROR.match(line.strip())]
    shown = list(dict.fromkeys(errors))[:5] or log.splitlines()[:12]
    return "\n".join([f"the device's compiler refused {names}:", *(f"  {line}" for line in shown)])


def check_limits(program: Program, largest_group: int, local_memory_size: int) -> None:
    """Raise LimitError for a work-group or local memory that the device does not have."""
    for entry in program.entries:
        size = entry.local[0] * entry.local[1] * entry.local[2]
        if size > largest_group:
            raise LimitError(
                f"{entry.name} needs work-groups of {size}, the device has {largest_group}"
            )
    wanted = local_memory(program)
    if wanted > local_memory_size:
        raise LimitError(f"{wanted} bytes of local memory, the device has {local_memory_size}")


def check_ability(program: Program, found: Findings, alias: str) -> None:
    """Raise LimitError for vectors or int8 dots that the probes did not find to work.

    PoCL's compiler ends the process over them.
    """
    target, config = program.target, program.config
    lanes, dot = config.lanes or target.lanes, config.dot or target.dot
    if target.kind == "simd" and lanes > found.lanes:
        raise LimitError(
            f"lanes={lanes}: vectors of {found.lanes} lanes are the widest that {alias} compiles"
            " for this processor"
        )
    if not found.works(dot):
        raise LimitError(
            f"dot={dot} does not work on {alias}, as its probe found; there are"
            f" {', '.join(found.dots)}"
        )


class BuildLocks:
    """One build of a key at a time, without holding up the others."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def of(self, key: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())
