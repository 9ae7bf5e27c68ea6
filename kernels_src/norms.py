"""Normalisations along rows: rmsnorm, also onto a residual or to int8, and layernorm.

Sums run in chunks of 4096 over 32 partials, so a row's result depends on the row alone.
"""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def inverse_rms(x, row, eps, K, BLOCK):
    """rsqrt(mean(x^2) + eps) of one row."""
    for c in tl.chunks(K, 4096):
        state = tl.partials()
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            v = tl.load(x[row, k], mask=k < c.stop, other=0.0)
            state = tl.accumulate(state, v * v, mask=k < c.stop)
        total = tl.combine(tl.add, tl.finish(state))
    return tl.rsqrt(total / K.to(tl.f32) + eps)


@kernel
def rmsnorm(
    x: tl.ptr[tl.f32, M, K],
    w: tl.ptr[tl.f32, K],
    y: tl.out[tl.f32, M, K],
    eps: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y = x * rsqrt(mean(x^2) + eps) * w"""
    row = tl.program_id(0, M)
    scale = inverse_rms(x, row, eps, K, BLOCK)
    for k0 in range(0, K, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < K)
        tl.store(y[row, k], v * scale * tl.load(w[k], mask=k < K), mask=k < K)


@kernel
def rmsnorm_add(
    x: tl.ptr[tl.f32, M, K],
    w: tl.ptr[tl.f32, K],
    residual: tl.ptr[tl.f32, M, K],
    y: tl.out[tl.f32, M, K],
    eps: tl.f32,
    scale: tl.ptr[tl.f32, 1] = None,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y = (residual + x * rsqrt(mean(x^2) + eps) * w) * scale; the scale may be left out."""
    row = tl.program_id(0, M)
    norm = inverse_rms(x, row, eps, K, BLOCK)
    for k0 in range(0, K, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < K) * norm * tl.load(w[k], mask=k < K)
        v = tl.load(residual[row, k], mask=k < K) + v
        if scale is not None:
            v = v * tl.load(scale[0])
        tl.store(y[row, k], v, mask=k < K)


@kernel
def rmsnorm_a8(
    x: tl.ptr[tl.f32, M, K],
    w: tl.ptr[tl.f32, K],
    y: tl.a8_out[M, K],
    eps: tl.f32,
    BM: tl.schedule[1, 2, 4] = 1,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y = quantise(x * rsqrt(mean(x^2) + eps) * w): the bits of rmsnorm, then of quantise."""
    m = tl.block(0, M, BM)
    live = (m < M)[:, None]
    for c in tl.chunks(K, 4096):
        state = tl.partials([BM])
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            seen = live & (k < c.stop)[None, :]
            v = tl.load(x[m[:, None], k[None, :]], mask=seen, other=0.0)
            state = tl.accumulate(state, v * v, axis=1, mask=seen)
        total = tl.combine(tl.add, tl.finish(state))
    scale = tl.rsqrt(total / K.to(tl.f32) + eps)
    for kb in range(0, tl.cdiv(K, 32)):
        k = kb * 32 + tl.arange(0, 32)
        v = tl.load(x[m[:, None], k[None, :]], mask=live & (k < K)[None, :], other=0.0)
        g = tl.load(w[k], mask=k < K, other=0.0)
        q, s = tl.quantize_i8(v * scale[:, None] * g[None, :])
        tl.store_block(y, m, kb, q, s, mask=m < M)


@kernel
def layernorm(
    x: tl.ptr[tl.f32, M, K],
    w: tl.ptr[tl.f32, K],
    b: tl.ptr[tl.f32, K],
    y: tl.out[tl.f32, M, K],
    eps: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y = (x - mean) * rsqrt(mean((x - mean)^2) + eps) * w + b"""
    row = tl.program_id(0, M)
    for c in tl.chunks(K, 4096):
        state = tl.partials()
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            v = tl.load(x[row, k], mask=k < c.stop, other=0.0)
            state = tl.accumulate(state, v, mask=k < c.stop)
        total = tl.combine(tl.add, tl.finish(state))
    mean = total / K.to(tl.f32)
    for c in tl.chunks(K, 4096):
        state = tl.partials()
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            d = tl.load(x[row, k], mask=k < c.stop, other=0.0) - mean
            state = tl.accumulate(state, d * d, mask=k < c.stop)
        spread = tl.combine(tl.add, tl.finish(state))
    scale = tl.rsqrt(spread / K.to(tl.f32) + eps)
    for k0 in range(0, K, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        d = tl.load(x[row, k], mask=k < K) - mean
        g = tl.load(w[k], mask=k < K)
        tl.store(y[row, k], tl.fma(d * scale, g, tl.load(b[k], mask=k < K)), mask=k < K)
