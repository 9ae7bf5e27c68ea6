"""Small launches of the shipped kernels, for a process that is watched by oclgrind.

``oclgrind --data-races python -m tests.device.checked`` runs them all, compares every bit with the
interpreter and prints one line a launch; names of kernels choose some. ``race`` and ``range`` run
programs that oclgrind must complain about.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ferro.codegen.program import Config
from ferro.dsl.kernel import KernelDefinition
from ferro.runtime import open_device
from kernels_src.attention import attention, attention_f16
from kernels_src.embedding import embed_q8
from kernels_src.matmul import gated_q8, matmul, matmul_q8
from kernels_src.norms import layernorm, rmsnorm, rmsnorm_a8
from kernels_src.quantise import quantise
from kernels_src.rotary import rotary
from kernels_src.softmax import softmax
from kernels_src.vectors import activate_multiply, add, scale_add
from tests.conformance import Draw, assert_same_bits

FAULTY = {
    "race": """__kernel void faulty(__global int* x, __global int* y) {
        __local int t[16]; int i = get_local_id(0); t[i] = x[i]; y[i] = t[15 - i]; }""",
    "range": """__kernel void faulty(__global int* x, __global int* y) {
        int i = get_local_id(0); y[i] = x[i + 1]; }""",
}


@dataclass(frozen=True)
class Launch:
    """One launch; sizes are those of ``arguments``."""

    kernel: KernelDefinition
    arguments: dict[str, Any]
    config: Config = field(default_factory=Config)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kernel.name} {self.config}"


def products(draw: Draw) -> Iterator[Launch]:
    def arguments(m: int, n: int, k: int) -> dict[str, Any]:
        return {"w": draw.q8(n, k), "x": draw.a8(m, k), "y": draw.f32(m, n)}

    yield Launch(matmul, {"x": draw.f32(3, 70), "w": draw.f32(70, 21), "y": draw.f32(3, 21)})
    yield Launch(matmul_q8, {**arguments(3, 70, 70), "residual": draw.f32(3, 70)})
    yield Launch(matmul_q8, arguments(3, 21, 70), Config({"BM": 16, "BN": 16}))
    yield Launch(matmul_q8, arguments(1, 20, 1100), Config({"BM": 1, "BN": 16}, split=2))
    both = {**arguments(3, 21, 70), "gate": draw.q8(21, 70), "up": draw.q8(21, 70)}
    both.pop("w")
    yield Launch(gated_q8, both, Config({"BM": 8, "BN": 16}))


def rows(draw: Draw) -> Iterator[Launch]:
    x, w, b, y = draw.f32(2, 300), draw.f32(300), draw.f32(300), draw.f32(2, 300)
    yield Launch(rmsnorm, {"x": x, "w": w, "y": y, "eps": 1e-5})
    yield Launch(layernorm, {"x": x, "w": w, "b": b, "y": y, "eps": 1e-5})
    yield Launch(rmsnorm_a8, {"x": x, "w": w, "y": draw.a8(2, 300), "eps": 1e-5})
    yield Launch(quantise, {"x": x, "y": draw.a8(2, 300)})
    yield Launch(softmax, {"x": draw.f32(2, 5000), "y": draw.f32(2, 5000)})


def elements(draw: Draw) -> Iterator[Launch]:
    x, y, out = draw.f32(700), draw.f32(700), draw.f32(700)
    yield Launch(add, {"x": x, "y": y, "out": out})
    yield Launch(scale_add, {"x": x, "y": y, "out": out, "scale": 2.5})
    gate = {"gate": x, "up": y, "out": out}
    yield Launch(activate_multiply, gate, constants={"ACT": "gelu"})
    tokens = draw.i32(-1, 9, 3)
    yield Launch(
        embed_q8, {"w": draw.q8(9, 70), "tokens": tokens, "y": draw.f32(3, 70), "scale": 2.0}
    )
    for pairs in ("halves", "interleaved"):
        table = {"cos": draw.f32(9, 33), "sin": draw.f32(9, 33), "positions": draw.i32(0, 8, 2)}
        turned = {"x": draw.f32(2, 3, 70), "heads": 2, **table}
        yield Launch(rotary, turned, constants={"PAIRS": pairs})


def attentions(draw: Draw) -> Iterator[Launch]:
    def arguments(head: int, group: int, queries: int, past: int, half: bool) -> dict[str, Any]:
        starts = draw.packed(2, queries)
        counts = np.diff(starts) + past
        bases = np.cumsum(counts + 1) - counts
        cache = draw.f16 if half else draw.f32
        total = int(counts.sum()) + 3
        return {
            "q": draw.f32(int(starts[-1]), group, head),
            "k": cache(total, 1, head),
            "v": cache(total, 1, head),
            "starts": starts,
            "keys": np.stack([bases, counts], axis=1).astype(np.int32),
            "out": draw.f32(int(starts[-1]), group, head),
            "longest": queries,
            "most": queries + past,
            "left": 2**30 - 1,
            "right": 0,
            "scale": head**-0.5,
        }

    def launch(
        config: Config, head: int, group: int, queries: int, past: int, half: bool
    ) -> Launch:
        kernel = attention_f16 if half else attention
        given = arguments(head, group, queries, past, half)
        return Launch(kernel, given, config, {"D": head, "GROUP": group})

    yield launch(Config({"BR": 2}), 64, 2, 3, 66, False)
    yield launch(Config({"BR": 1}, split=2), 64, 1, 3, 66, True)
    yield launch(Config({"BR": 1}, lanes=32), 64, 1, 2, 66, True)
    yield launch(Config({"BR": 16}), 40, 1, 2, 3, False)


def launches() -> Iterator[Launch]:
    """Every shipped kernel at least once, with tails, local memory and splits."""
    draw = Draw(5)
    for part in (products, rows, elements, attentions):
        yield from part(draw)


def run(launch: Launch) -> None:
    """Raises AssertionError where a bit differs from the interpreter's."""
    device, got = open_device(), launch.arguments
    want = copy.deepcopy(got)
    open_device("interpreter").run(launch.kernel, **launch.constants, **want)
    device.run(launch.kernel, launch.config, **launch.constants, **got)
    for name, value in want.items():
        assert_same_bits(got[name], value, f"{launch}: {name}")
    print("checked", launch, flush=True)


def run_faulty(name: str) -> None:
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE, 64) for _ in range(2)]
    kernel = cl.Kernel(cl.Program(context, FAULTY[name]).build(), "faulty")
    kernel(queue, (16,), (16,), *buffers).wait()


if __name__ == "__main__":
    if open_device().info.alias != "oclgrind":
        sys.exit("this is no process of oclgrind")
    wanted = sys.argv[1:]
    for fault in set(wanted) & set(FAULTY):
        run_faulty(fault)
    for each in launches():
        if not wanted or each.kernel.name in wanted:
            run(each)
