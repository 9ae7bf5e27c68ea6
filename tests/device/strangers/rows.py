"""Kernels with one program a row: quantised blocks addressed by a scalar row."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def add_norm_a8(
    x: tl.ptr[tl.f32, M, K],
    h: tl.inout[tl.f32, M, K],
    w: tl.ptr[tl.f32, K],
    y: tl.a8_out[M, K],
    eps: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """h = h + x; y = quantise(rmsnorm(h) * w)"""
    row = tl.program_id(0, M)
    for c in tl.chunks(K, 4096):
        state = tl.partials()
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            seen = k < c.stop
            v = tl.load(h[row, k], mask=seen) + tl.load(x[row, k], mask=seen)
            tl.store(h[row, k], v, mask=seen)
            state = tl.accumulate(state, v * v, mask=seen)
        total = tl.combine(tl.add, tl.finish(state))
    scale = tl.rsqrt(total / K.to(tl.f32) + eps)
    for kb in range(0, tl.cdiv(K, 32)):
        k = kb * 32 + tl.arange(0, 32)
        v = tl.load(h[row, k], mask=k < K, other=0.0)
        q, s = tl.quantize_i8(v * scale * tl.load(w[k], mask=k < K, other=0.0))
        tl.store_block(y, row, kb, q, s)


@kernel
def chosen_rows(
    w: tl.q8[N, K],
    x: tl.a8[M, K],
    index: tl.ptr[tl.i32, M],
    y: tl.out[tl.f32, M, K],
):
    """Row m of y is row index[m] of w plus row m of x; what is out of range counts as zeros."""
    row = tl.program_id(0, M)
    n = tl.load(index[row])
    for kb in range(0, tl.cdiv(K, 32)):
        k = kb * 32 + tl.arange(0, 32)
        wq, ws = tl.load_block(w, n, kb, mask=(n >= 0) & (n < N))
        xq, xs = tl.load_block(x, row, kb)
        tl.store(y[row, k], wq.to(tl.f32) * ws + xq.to(tl.f32) * xs, mask=k < K)
