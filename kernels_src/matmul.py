"""Matrix products: float32, and int8 activations by block-quantised weights.

K runs in chunks of 512 whose sums are added in ascending order, so one row and many rows, split
over K or not, agree in every bit.
"""

from __future__ import annotations

from ferro.dsl import kernel, tl
from kernels_src.epilogue import store_gated, store_gated_a8, store_result


@kernel
def matmul(
    x: tl.ptr[tl.f32, M, K],
    w: tl.ptr[tl.f32, K, N],
    y: tl.out[tl.f32, M, N],
    bias: tl.ptr[tl.f32, N] = None,
    residual: tl.ptr[tl.f32, M, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "none",
    BM: tl.schedule[1, 2, 4, 6, 8] = 4,
    BN: tl.schedule[16, 32, 48, 64] = 64,
    BK: tl.schedule[4, 8, 16] = 4,
):
    """y = ACT(x @ w + bias) + residual, one fma per k."""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    for c in tl.chunks(K, 512):
        part = tl.zeros([BM, BN], tl.f32)
        for k0 in range(c.start, c.stop, BK):
            k = k0 + tl.arange(0, BK)
            in_x = (m < M)[:, None] & (k < c.stop)[None, :]
            in_w = (k < c.stop)[:, None] & (n < N)[None, :]
            # 0 times -0 added to anything leaves it alone: padding never shows in the bits.
            a = tl.load(x[m[:, None], k[None, :]], mask=in_x, other=0.0)
            b = tl.load(w[k[:, None], n[None, :]], mask=in_w, other=-0.0)
            part = tl.dot(a, b, part)
        acc = tl.combine(tl.add, part)
    store_result(acc, y, bias, residual, m, n, M, N, ACT)


@kernel
def gated(
    gate: tl.ptr[tl.f32, K, N],
    up: tl.ptr[tl.f32, K, N],
    x: tl.ptr[tl.f32, M, K],
    y: tl.out[tl.f32, M, N],
    gate_bias: tl.ptr[tl.f32, N] = None,
    up_bias: tl.ptr[tl.f32, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "silu",
    BM: tl.schedule[1, 2, 4] = 4,
    BN: tl.schedule[16, 32] = 32,
    BK: tl.schedule[4, 8, 16] = 4,
):
    """y = ACT(x @ gate + gate_bias) * (x @ up + up_bias): the bits of two matmul and an
    activate_multiply."""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    for c in tl.chunks(K, 512):
        part_g = tl.zeros([BM, BN], tl.f32)
        part_u = tl.zeros([BM, BN], tl.f32)
        for k0 in range(c.start, c.stop, BK):
            k = k0 + tl.arange(0, BK)
            in_x = (m < M)[:, None] & (k < c.stop)[None, :]
            in_w = (k < c.stop)[:, None] & (n < N)[None, :]
            a = tl.load(x[m[:, None], k[None, :]], mask=in_x, other=0.0)
            g = tl.load(gate[k[:, None], n[None, :]], mask=in_w, other=-0.0)
            u = tl.load(up[k[:, None], n[None, :]], mask=in_w, other=-0.0)
            part_g = tl.dot(a, g, part_g)
            part_u = tl.dot(a, u, part_u)
        acc_g, acc_u = tl.combine(tl.add, part_g, part_u)
    store_gated(acc_g, acc_u, y, gate_bias, up_bias, m, n, M, N, ACT)


@kernel
def matmul_q8(
    w: tl.q8[N, K],
    x: tl.a8[M, K],
    y: tl.out[tl.f32, M, N],
    bias: tl.ptr[tl.f32, N] = None,
    residual: tl.ptr[tl.f32, M, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "none",
    BM: tl.schedule[1, 2, 4, 8, 16] = 4,
    BN: tl.schedule[16, 32, 64] = 64,
):
    """y = ACT(x @ w.T + bias) + residual"""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    for c in tl.chunks(K, 512):
        part = tl.zeros([BM, BN], tl.f32)
        for kb in range(c.start // 32, tl.cdiv(c.stop, 32)):
            wq, ws = tl.load_block(w, n, kb, mask=n < N)
            xq, xs = tl.load_block(x, m, kb, mask=m < M)
            d = tl.dot_i8(xq, wq.T)
            part = tl.fma(d.to(tl.f32), xs[:, None] * ws[None, :], part)
        acc = tl.combine(tl.add, part)
    store_result(acc, y, bias, residual, m, n, M, N, ACT)


@kernel
def gate_and_up_q8(gate, up, x, m, n, M, N, K, BM, BN):
    """The two products [BM, BN] that a gated product multiplies."""
    for c in tl.chunks(K, 512):
        part_g = tl.zeros([BM, BN], tl.f32)
        part_u = tl.zeros([BM, BN], tl.f32)
        for kb in range(c.start // 32, tl.cdiv(c.stop, 32)):
            xq, xs = tl.load_block(x, m, kb, mask=m < M)
            gq, gs = tl.load_block(gate, n, kb, mask=n < N)
            uq, us = tl.load_block(up, n, kb, mask=n < N)
            g = tl.dot_i8(xq, gq.T).to(tl.f32)
            u = tl.dot_i8(xq, uq.T).to(tl.f32)
            part_g = tl.fma(g, xs[:, None] * gs[None, :], part_g)
            part_u = tl.fma(u, xs[:, None] * us[None, :], part_u)
        acc_g, acc_u = tl.combine(tl.add, part_g, part_u)
    return acc_g, acc_u


@kernel
def gated_q8(
    gate: tl.q8[N, K],
    up: tl.q8[N, K],
    x: tl.a8[M, K],
    y: tl.out[tl.f32, M, N],
    gate_bias: tl.ptr[tl.f32, N] = None,
    up_bias: tl.ptr[tl.f32, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "silu",
    BM: tl.schedule[1, 2, 4, 8] = 4,
    BN: tl.schedule[16, 32] = 32,
):
    """y = ACT(x @ gate.T + gate_bias) * (x @ up.T + up_bias): the bits of two matmul_q8 and an
    activate_multiply."""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    acc_g, acc_u = gate_and_up_q8(gate, up, x, m, n, M, N, K, BM, BN)
    store_gated(acc_g, acc_u, y, gate_bias, up_bias, m, n, M, N, ACT)


@kernel
def gated_q8_a8(
    gate: tl.q8[N, K],
    up: tl.q8[N, K],
    x: tl.a8[M, K],
    y: tl.a8_out[M, N],
    gate_bias: tl.ptr[tl.f32, N] = None,
    up_bias: tl.ptr[tl.f32, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "silu",
    BM: tl.schedule[1, 2, 4, 8] = 4,
):
    """The bits of ``gated_q8``, then of ``quantise``: the input of the product that follows."""
    block = tl.program_id(0, tl.cdiv(N, 32))
    m = tl.block(1, M, BM)
    n = block * 32 + tl.arange(0, 32)
    acc_g, acc_u = gate_and_up_q8(gate, up, x, m, n, M, N, K, BM, 32)
    store_gated_a8(acc_g, acc_u, y, gate_bias, up_bias, m, block, M, N, ACT)
