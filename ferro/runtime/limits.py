"""What a device can do at best, measured: reading memory, int8 dots and f32 multiply-adds.

The programs here are rulers to measure kernels against, written per kind of device; they are not
kernels of Ferro. Measured by events, the best of a few runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ferro.codegen.program import Argument, Config, Entry, Program, Target
from ferro.runtime import probe_sources
from ferro.runtime.device import Device
from ferro.runtime.listing import INTERPRETER
from ferro.runtime.plan import Step

if TYPE_CHECKING:
    from ferro.runtime.buffers import Buffer
    from ferro.runtime.opencl import OpenCLDevice

RUNS = 5
SUMS = 12  # enough to hide an instruction's latency, few enough for the registers
OPTIONS = ("-cl-std=CL1.2",)

# Each work-item of a CPU reads four contiguous pieces side by side (one stream of them is a tenth
# slower: hardware prefetchers stop at pages); on a GPU neighbours read neighbouring words.
_READ_CPU = """
__kernel void read(__global const int16 *x, __global int16 *out, int n)
{
    size_t i = get_global_id(0);
    int s = n / 4;
    __global const int16 *p = x + i * n, *q = p + s, *u = q + s, *v = u + s;
    int16 a = 0, b = 0, c = 0, d = 0;
    for (int j = 0; j < s; j++) { a ^= p[j]; b ^= q[j]; c ^= u[j]; d ^= v[j]; }
    out[i] = a ^ b ^ c ^ d;
}
"""

_READ_GPU = """
__kernel void read(__global const uint4 *x, __global uint4 *out, int n)
{
    size_t i = get_global_id(0), step = get_global_size(0);
    uint4 a = 0, b = 0;
    for (int j = 0; j < n; j += 2) { a ^= x[i + j * step]; b ^= x[i + (j + 1) * step]; }
    out[i] = a ^ b;
}
"""

_COMPUTE = """
{head}
__kernel void compute(__global const {vector} *x, __global {vector} *out, int n)
{{
    size_t i = get_global_id(0);
    {vector} w = x[0], v = x[1];
    {vector} {declare};
    for (int j = 0; j < n; j++) {{ {body} }}
    out[i] = {total};
}}
"""

_DP4A = """
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#define DOT(acc, w, x) dot_acc_sat_4x8packed_ss_int(w, x, acc)
"""


_FMA = """
float{n} __attribute__((overloadable)) FMA(float{n}, float{n}, float{n})
    __asm__("llvm.fma.v{n}f32");
"""


@dataclass(frozen=True)
class Limits:
    """Bytes read, int8 operations and f32 operations a second (a multiply-add counts as two).

    ``dot`` is None where the device has no int8 dot instruction that was found to work.
    """

    read: float
    dot: float | None
    f32: float


Sampler = Callable[[], float]


def measure(device: Device, megabytes: int = 512) -> Limits:
    """Measure a device; takes about a second."""
    found = {kind: sample() for kind, sample in samplers(device, megabytes << 20).items()}
    return Limits(found["read"], found.get("dot"), found["f32"])


def samplers(
    device: Device, size: int = 512 << 20, kinds: Iterable[str] = ("read", "dot", "f32")
) -> dict[str, Sampler]:
    """What measures each kind of limit once, in units a second (see ``Limits``), whenever it is
    called. Memory is read over ``size`` bytes; a kind that the device does not have is left out."""
    opened: OpenCLDevice = device  # type: ignore[assignment]
    every = _on_host(size) if device.info.kind == INTERPRETER else _on_device(opened, size)
    return {kind: every[kind] for kind in kinds if kind in every}


def _on_device(device: OpenCLDevice, size: int) -> dict[str, Sampler]:
    found: dict[str, Sampler] = {"read": reader(device, size), "f32": partial(f32_rate, device)}
    return {**found, "dot": partial(dot_rate, device)} if has_dot(device.target) else found


def _on_host(size: int) -> dict[str, Sampler]:
    data = np.ones(max(1, size // 8), np.int64)
    n = 768
    a, b = np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
    return {
        "read": lambda: data.nbytes / _best(lambda: np.bitwise_xor.reduce(data)),
        "f32": lambda: 2 * n**3 / _best(lambda: a @ b),
    }


def reader(device: OpenCLDevice, size: int) -> Sampler:
    """Measures bytes a second of a kernel that only reads a buffer of about ``size`` bytes."""
    cpu = device.target.kind == "simd"
    group, item = (1, 64) if cpu else (64, 16)
    items = device.info.capabilities["compute units"] * (16 if cpu else 64 * 16)
    count = max(4, size // (items * item) // 4 * 4)
    program = _program(_READ_CPU if cpu else _READ_GPU, "read", device.target, items, group)
    held = device.array(np.zeros(items * item * count, np.uint8), "scratch")
    out = device.empty((items * item,), np.uint8, "scratch")

    def sample() -> float:
        best = min(_seconds(device, program, held, out, count) for _ in range(RUNS))
        return items * item * count / best

    return sample


def has_dot(target: Target) -> bool:
    """True for a target whose int8 dot is an instruction."""
    return target.dot == "dp4a" or (target.dot, target.abi) in probe_sources.VNNI


def dot_rate(device: OpenCLDevice) -> float:
    """int8 operations a second of independent dot instructions."""
    target = device.target
    if target.dot == "dp4a":
        head, width = _DP4A, 1
    else:
        head, width = probe_sources.VNNI[target.dot, target.abi], target.lanes
    return _compute_rate(device, head, "int", width, "{a} = DOT({a}, w, v);", 8)


def f32_rate(device: OpenCLDevice) -> float:
    """f32 operations a second of independent multiply-adds."""
    target = device.target
    width = target.lanes if target.kind == "simd" else 1
    if width > 1 and target.abi:
        return _compute_rate(
            device, _FMA.format(n=width), "float", width, "{a} = FMA({a}, w, v);", 2
        )
    return _compute_rate(device, "", "float", width, "{a} = fma({a}, w, v);", 2)


def _compute_rate(
    device: OpenCLDevice, head: str, element: str, width: int, step: str, operations: int
) -> float:
    vector = f"{element}{width if width > 1 else ''}"
    names = [f"s{i}" for i in range(SUMS)]
    source = _COMPUTE.format(
        head=head,
        vector=vector,
        declare=", ".join(f"{a} = v + {i}" for i, a in enumerate(names)),
        body=" ".join(step.format(a=a) for a in names),
        total=" + ".join(names),
    )
    cpu = device.target.kind == "simd"
    group = 1 if cpu else 64
    items = device.info.capabilities["compute units"] * (16 if cpu else 64 * 16)
    program = _program(source, "compute", device.target, items, group)
    x = device.array(np.zeros(2 * width, np.float32), "scratch")
    out = device.empty((items * width,), np.float32, "scratch")
    count = 20_000
    best = min(_seconds(device, program, x, out, count) for _ in range(RUNS))
    return items * width * SUMS * count * operations / best


def _program(source: str, name: str, target: Target, items: int, group: int) -> Program:
    arguments = (Argument("buffer", "x"), Argument("buffer", "out"), Argument("scalar", "n", "i32"))
    groups = (("const", items // group), ("const", 1), ("const", 1))
    options = ("-cl-std=CL3.0",) if "integer_dot_product" in source else OPTIONS
    return Program(
        source, options, (Entry(name, arguments, groups, (group, 1, 1)),), target, Config()
    )


def _seconds(device: OpenCLDevice, program: Program, x: Buffer, out: Buffer, count: int) -> float:
    (entry,) = program.entries
    kernel = device.build_once(program).kernel(entry)
    kernel.set_arg(0, x.memory)
    kernel.set_arg(1, out.memory)
    kernel.set_arg(2, np.int32(count))
    groups = entry.groups[0][1]
    step = Step(entry.name, kernel, (groups * entry.local[0], 1, 1), entry.local, ())
    return timed(device, step)


def timed(device: OpenCLDevice, step: Step) -> float:
    """Seconds of one launch."""
    with device.profile() as profiler:
        device.queue.enqueue(step.kernel, step.size, step.local, step.name)
    (timing,) = profiler.timings()
    return timing.seconds


def _best(work: Callable[[], object]) -> float:
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)
