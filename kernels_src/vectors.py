"""Elementwise kernels over vectors."""

from __future__ import annotations

from ferro.dsl import kernel, tl
from kernels_src.activations import activate


@kernel
def add(
    x: tl.ptr[tl.f32, N],
    y: tl.ptr[tl.f32, N],
    out: tl.out[tl.f32, N],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """out = x + y"""
    n = tl.block(0, N, BLOCK)
    tl.store(out[n], tl.load(x[n], mask=n < N) + tl.load(y[n], mask=n < N), mask=n < N)


@kernel
def scale_add(
    x: tl.ptr[tl.f32, N],
    y: tl.ptr[tl.f32, N],
    out: tl.out[tl.f32, N],
    scale: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """out = fma(x, scale, y)"""
    n = tl.block(0, N, BLOCK)
    a = tl.load(x[n], mask=n < N)
    b = tl.load(y[n], mask=n < N)
    tl.store(out[n], tl.fma(a, scale, b), mask=n < N)


@kernel
def activate_multiply(
    gate: tl.ptr[tl.f32, N],
    up: tl.ptr[tl.f32, N],
    out: tl.out[tl.f32, N],
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "silu",
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """out = ACT(gate) * up"""
    n = tl.block(0, N, BLOCK)
    g = tl.load(gate[n], mask=n < N)
    u = tl.load(up[n], mask=n < N)
    tl.store(out[n], activate(g, ACT) * u, mask=n < N)
