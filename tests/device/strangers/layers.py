"""Layers of other models: gated units, clamped products, group norm."""

from __future__ import annotations

from ferro.dsl import f32, kernel, tl


@kernel
def glu(
    x: tl.ptr[f32, M, 2 * N],
    y: tl.out[f32, M, N],
    BN: tl.schedule[16, 64, 128] = 64,
):
    """y = x[:, :N] * sigmoid(x[:, N:])"""
    n = tl.block(0, N, BN)
    m = tl.program_id(1, M)
    value = tl.load(x[m, n], mask=n < N)
    gate = tl.load(x[m, n + N], mask=n < N)
    tl.store(y[m, n], value * tl.sigmoid(gate), mask=n < N)


@kernel
def clamped_linear(
    x: tl.ptr[f32, M, K],
    w: tl.q8[N, K],
    y: tl.out[f32, M, N],
    in_lo: tl.f32,
    in_hi: tl.f32,
    out_lo: tl.f32,
    out_hi: tl.f32,
    BM: tl.schedule[1, 2, 4] = 2,
    BN: tl.schedule[16, 32] = 16,
):
    """y = clamp(quantise(clamp(x)) @ w.T), quantised on the way."""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    for c in tl.chunks(K, 512):
        part = tl.zeros([BM, BN], f32)
        for kb in range(c.start // 32, tl.cdiv(c.stop, 32)):
            k = kb * 32 + tl.arange(0, 32)
            seen = (m < M)[:, None] & (k < K)[None, :]
            v = tl.load(x[m[:, None], k[None, :]], mask=seen, other=0.0)
            v = tl.where(seen, tl.clamp(v, in_lo, in_hi), 0.0)
            xq, xs = tl.quantize_i8(v)
            wq, ws = tl.load_block(w, n, kb, mask=n < N)
            part = tl.fma(tl.dot_i8(xq, wq.T).to(f32), xs[:, None] * ws[None, :], part)
        acc = tl.combine(tl.add, part)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(y[m[:, None], n[None, :]], tl.clamp(acc, out_lo, out_hi), mask=inside)


@kernel
def group_norm(
    x: tl.ptr[f32, G * S, T],
    w: tl.ptr[f32, G * S],
    b: tl.ptr[f32, G * S],
    y: tl.out[f32, G * S, T],
    G: tl.i32[1, 1024],
    S: tl.i32[1, 65536],
    eps: f32,
    BLOCK: tl.schedule[64, 256] = 64,
):
    """Each of G groups of S channels by T is brought to mean 0 and variance 1."""
    g = tl.program_id(0, G)
    for c in tl.chunks(S * T, 4096):
        state = tl.partials()
        for e0 in range(c.start, c.stop, BLOCK):
            e = e0 + tl.arange(0, BLOCK)
            v = tl.load(x[g * S + e // T, e % T], mask=e < c.stop, other=0.0)
            state = tl.accumulate(state, v, mask=e < c.stop)
        total = tl.combine(tl.add, tl.finish(state))
    mean = total / (S * T).to(f32)
    for c in tl.chunks(S * T, 4096):
        state = tl.partials()
        for e0 in range(c.start, c.stop, BLOCK):
            e = e0 + tl.arange(0, BLOCK)
            v = tl.load(x[g * S + e // T, e % T], mask=e < c.stop, other=0.0) - mean
            state = tl.accumulate(state, v * v, mask=e < c.stop)
        spread = tl.combine(tl.add, tl.finish(state))
    scale = tl.rsqrt(spread / (S * T).to(f32) + eps)
    for e0 in range(0, S * T, BLOCK):
        e = e0 + tl.arange(0, BLOCK)
        channel = g * S + e // T
        v = (tl.load(x[channel, e % T], mask=e < S * T) - mean) * scale
        v = tl.fma(v, tl.load(w[channel], mask=e < S * T), tl.load(b[channel], mask=e < S * T))
        tl.store(y[channel, e % T], v, mask=e < S * T)
