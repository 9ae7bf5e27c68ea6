"""A device that is only described, and a kernel whose configs a made-up child answers for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from autotune.problem import Problem
from ferro.codegen.program import Target
from ferro.dsl import kernel, tl
from ferro.measure import Request
from ferro.runtime.listing import DeviceInfo

SIMD = Target("simd", 16)
SIMT = Target("simt", 16)


@kernel
def double(
    x: tl.ptr[tl.f32, N],
    y: tl.out[tl.f32, N],
    BLOCK: tl.schedule[16, 32, 64, 128, 256] = 64,
):
    n = tl.block(0, N, BLOCK)
    tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)


@kernel
def product(
    w: tl.q8[N, K],
    x: tl.a8[M, K],
    y: tl.out[tl.f32, M, N],
    BM: tl.schedule[1, 2, 4, 8, 16] = 4,
    BN: tl.schedule[16, 32, 64] = 64,
):
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    for c in tl.chunks(K, 512):
        part = tl.zeros([BM, BN], tl.f32)
        for kb in range(c.start // 32, tl.cdiv(c.stop, 32)):
            wq, ws = tl.load_block(w, n, kb, mask=n < N)
            xq, xs = tl.load_block(x, m, kb, mask=m < M)
            part = tl.fma(tl.dot_i8(xq, wq.T).to(tl.f32), xs[:, None] * ws[None, :], part)
        acc = tl.combine(tl.add, part)
    tl.store(y[m[:, None], n[None, :]], acc, mask=(m < M)[:, None] & (n < N)[None, :])


class Described(SimpleNamespace):
    """Something with the facts of a device, which can run nothing."""

    def __enter__(self) -> Described:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def device(**capabilities: Any) -> Any:
    facts = {
        "compute units": 2,
        "largest work-group": 1024,
        "local memory": 65536,
        "memory": 1 << 30,
        **capabilities,
    }
    info = DeviceInfo(0, "fake", "Fake 1", "Fakes", "3.0", "7", "cpu", facts)
    return Described(info=info, target=SIMD, targets=lambda: (SIMD, SIMT))


def problem(
    definition: Any = double, target: Target = SIMD, constants: Any = None, **sizes: int
) -> Problem:
    return Problem(Request(definition, sizes or {"N": 1000}, constants or {}), target)
