"""Products of int8 activations by weights of 4 bits.

As in ``matmul_q8``; in addition every block of weights has a minimum, which meets the sum of the
activations' block in an fma of its own.
"""

from __future__ import annotations

from ferro.dsl import kernel, tl
from kernels_src.epilogue import store_gated, store_gated_a8, store_result


@kernel
def add_block(part, wq, ws, wm, xq, xs, total):
    d = tl.dot_i8(xq, wq.T).to(tl.f32)
    part = tl.fma(d, xs[:, None] * ws[None, :], part)
    return tl.fma(total[:, None], wm[None, :], part)


@kernel
def block_total(xq, xs):
    return xs * tl.sum(xq.to(tl.i32), axis=1).to(tl.f32)


@kernel
def matmul_q4(
    w: tl.q4[N, K],
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
            wq, ws, wm = tl.load_block(w, n, kb, mask=n < N)
            xq, xs = tl.load_block(x, m, kb, mask=m < M)
            part = add_block(part, wq, ws, wm, xq, xs, block_total(xq, xs))
        acc = tl.combine(tl.add, part)
    store_result(acc, y, bias, residual, m, n, M, N, ACT)


@kernel
def gate_and_up_q4(gate, up, x, m, n, M, N, K, BM, BN):
    """The two products [BM, BN] that a gated product multiplies."""
    for c in tl.chunks(K, 512):
        part_g = tl.zeros([BM, BN], tl.f32)
        part_u = tl.zeros([BM, BN], tl.f32)
        for kb in range(c.start // 32, tl.cdiv(c.stop, 32)):
            xq, xs = tl.load_block(x, m, kb, mask=m < M)
            total = block_total(xq, xs)
            gq, gs, gm = tl.load_block(gate, n, kb, mask=n < N)
            part_g = add_block(part_g, gq, gs, gm, xq, xs, total)
            uq, us, um = tl.load_block(up, n, kb, mask=n < N)
            part_u = add_block(part_u, uq, us, um, xq, xs, total)
        acc_g, acc_u = tl.combine(tl.add, part_g, part_u)
    return acc_g, acc_u


@kernel
def gated_q4(
    gate: tl.q4[N, K],
    up: tl.q4[N, K],
    x: tl.a8[M, K],
    y: tl.out[tl.f32, M, N],
    gate_bias: tl.ptr[tl.f32, N] = None,
    up_bias: tl.ptr[tl.f32, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "silu",
    BM: tl.schedule[1, 2, 4, 8] = 4,
    BN: tl.schedule[16, 32] = 32,
):
    """y = ACT(x @ gate.T + gate_bias) * (x @ up.T + up_bias): the bits of two matmul_q4 and an
    activate_multiply."""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    acc_g, acc_u = gate_and_up_q4(gate, up, x, m, n, M, N, K, BM, BN)
    store_gated(acc_g, acc_u, y, gate_bias, up_bias, m, n, M, N, ACT)


@kernel
def gated_q4_a8(
    gate: tl.q4[N, K],
    up: tl.q4[N, K],
    x: tl.a8[M, K],
    y: tl.a8_out[M, N],
    gate_bias: tl.ptr[tl.f32, N] = None,
    up_bias: tl.ptr[tl.f32, N] = None,
    ACT: tl.const["none", "silu", "gelu", "gelu_tanh", "relu"] = "silu",
    BM: tl.schedule[1, 2, 4, 8] = 4,
):
    """The bits of ``gated_q4``, then of ``quantise``: the input of the product that follows."""
    block = tl.program_id(0, tl.cdiv(N, 32))
    m = tl.block(1, M, BM)
    n = block * 32 + tl.arange(0, 32)
    acc_g, acc_u = gate_and_up_q4(gate, up, x, m, n, M, N, K, BM, 32)
    store_gated_a8(acc_g, acc_u, y, gate_bias, up_bias, m, block, M, N, ACT)
