"""Attention with a learnt bias by distance, a soft cap, and 2-D rotary embedding."""

from __future__ import annotations

from ferro.dsl import f32, kernel, tl


@kernel
def cap_50(x: tl.ptr[f32, N], y: tl.out[f32, N], BLOCK: tl.schedule[32, 64, 256] = 64):
    """y = 50 tanh(x / 50)"""
    n = tl.block(0, N, BLOCK)
    tl.store(y[n], 50.0 * tl.tanh(tl.load(x[n], mask=n < N) / 50.0), mask=n < N)


@kernel
def merge(m, s, acc, new_m, new_s, new_acc):
    top = tl.maximum(m, new_m)
    a, b = tl.exp(m - top), tl.exp(new_m - top)
    return top, tl.fma(s, a, new_s * b), tl.fma(acc, a[:, None], new_acc * b[:, None])


@kernel
def biased_attention(
    q: tl.ptr[f32, T, H, D],
    k: tl.ptr[f32, S, H, D],
    v: tl.ptr[f32, S, H, D],
    bias: tl.ptr[f32, H, 2 * R + 1],
    y: tl.out[f32, T, H, D],
    R: tl.i32[1, 4096],
    scale: f32,
    D: tl.const,
    BQ: tl.schedule[1, 2, 4] = 2,
):
    """Every query sees every key; a bias by clipped distance is added to the scores."""
    t = tl.block(0, T, BQ)
    h = tl.program_id(1, H)
    d = tl.arange(0, D)
    qt = tl.load(q[t[:, None], h, d[None, :]], mask=(t < T)[:, None], other=0.0)
    for c in tl.chunks(S, 64):
        j = c.start + tl.arange(0, 64)
        there = (j < c.stop)[:, None]
        kt = tl.load(k[j[:, None], h, d[None, :]], mask=there, other=0.0)
        vt = tl.load(v[j[:, None], h, d[None, :]], mask=there, other=0.0)
        far = tl.clamp(j[None, :] - t[:, None], -R, R) + R
        s = tl.fma(tl.dot(qt, kt.T), scale, tl.load(bias[h, far]))
        seen = (j < c.stop)[None, :]
        m = tl.max(s, axis=1, mask=seen)
        p = tl.where(seen, tl.exp(s - m[:, None]), 0.0)
        peak, total, acc = tl.combine(merge, m, tl.sum(p, axis=1), tl.dot(p, vt))
    tl.store(y[t[:, None], h, d[None, :]], acc / total[:, None], mask=(t < T)[:, None])


@kernel
def turn(x, co, si):
    a, b = tl.split(x, axis=0, how="pairs")
    return tl.join(tl.fma(a, co, -(b * si)), tl.fma(b, co, a * si), axis=0, how="pairs")


@kernel
def rotary_2d(
    x: tl.ptr[f32, T, H, D],
    cos: tl.ptr[f32, P, D // 4],
    sin: tl.ptr[f32, P, D // 4],
    place: tl.ptr[tl.i32, T, 2],
    y: tl.out[f32, T, H, D],
    D: tl.const,
):
    """The first half of a head turns by the row, the second by the column of a patch."""
    h = tl.program_id(0, H)
    t = tl.program_id(1, T)
    d = tl.arange(0, D)
    i = tl.arange(0, D // 4)
    by_row, by_col = tl.split(tl.load(x[t, h, d]), axis=0, how="halves")
    row = tl.clamp(tl.load(place[t, 0]), 0, P - 1)
    col = tl.clamp(tl.load(place[t, 1]), 0, P - 1)
    by_row = turn(by_row, tl.load(cos[row, i]), tl.load(sin[row, i]))
    by_col = turn(by_col, tl.load(cos[col, i]), tl.load(sin[col, i]))
    tl.store(y[t, h, d], tl.join(by_row, by_col, axis=0, how="halves"))
