"""Kernels of a stranger over 4-bit weights: single elements and whole blocks."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def rows_of(
    w: tl.q4[V, K],
    tokens: tl.ptr[tl.i32, T],
    y: tl.out[tl.f32, T, K],
    BLOCK: tl.schedule[16, 64] = 64,
):
    t = tl.program_id(1, T)
    k = tl.block(0, K, BLOCK)
    token = tl.load(tokens[t])
    inside = (k < K) & (token >= 0) & (token < V)
    tl.store(y[t, k], tl.load(w[token, k], mask=inside, other=0.0), mask=k < K)


@kernel
def blocks_of(w: tl.q4[V, K], y: tl.out[tl.f32, V, K], BR: tl.schedule[16, 32] = 16):
    kb = tl.program_id(0, tl.cdiv(K, 32))
    n = tl.block(1, V, BR)
    q, scale, low = tl.load_block(w, n, kb, mask=n < V)
    k = kb * 32 + tl.arange(0, 32)
    value = tl.fma(q.to(tl.f32), scale[:, None], low[:, None])
    tl.store(y[n[:, None], k[None, :]], value, mask=(n < V)[:, None] & (k < K)[None, :])
