"""Attention over packed sequences, prefill and decode alike.

Keys are taken in chunks of 64 by their position in their own sequence. Each chunk has its own
maximum and sum; chunks are merged in ascending order and those without a visible key are left
out, so a query's result depends on its own keys alone: not on the tile, the batch or the split.
"""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def merge(peak, total, acc, new_peak, new_total, new_acc):
    top = tl.maximum(peak, new_peak)
    old = tl.exp(peak - top)
    new = tl.exp(new_peak - top)
    total = tl.fma(total, old, new_total * new)
    return top, total, tl.fma(acc, old[:, None], new_acc * new[:, None])


@kernel
def soft_cap(s, CAP):
    if CAP != 0.0:
        s = CAP * tl.tanh(s / CAP)
    return s


@kernel
def attend(
    q, k, v, starts, keys, out, longest, most, r, g, s, left, right, scale, T, S, D, GROUP, CAP
):
    # A row r is one query head of one query; the heads that share K and V sit side by side.
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    queries = tl.clamp(tl.load(starts[s + 1]), 0, T) - begin
    base = tl.clamp(tl.load(keys[s, 0]), 0, S)
    count = tl.clamp(tl.load(keys[s, 1]), 0, tl.minimum(S - base, most))

    query = r // GROUP
    head = g * GROUP + r % GROUP
    t = begin + query
    live = (query < queries) & (query < longest) & (t < T)
    d = tl.arange(0, D)
    qt = tl.load(q[t[:, None], head[:, None], d[None, :]], mask=live[:, None], other=0.0)

    # Row r sees the keys first..last of its sequence: the last query is at the last key.
    position = count - queries + query
    first = tl.where(live, tl.maximum(position - left, 0), count)
    last = tl.minimum(position + right, count - 1)

    for c in tl.chunks(count, 64):
        key = c.start + tl.arange(0, 64)
        row = base + key
        there = ((key < c.stop) & (row < S))[:, None]
        kt = tl.load(k[row[:, None], g, d[None, :]], mask=there, other=0.0).to(tl.f32)
        vt = tl.load(v[row[:, None], g, d[None, :]], mask=there, other=0.0).to(tl.f32)
        visible = (key[None, :] >= first[:, None]) & (key[None, :] <= last[:, None])
        score = soft_cap(tl.dot(qt, kt.T) * scale, CAP)
        top = tl.max(score, axis=1, mask=visible)
        p = tl.where(visible, tl.exp(score - top[:, None]), 0.0)
        # Hidden keys add +0 or -0 by the sign of v; + 0.0 leaves one zero of the two.
        weighted = tl.dot(p, vt) + 0.0
        seen = (first < c.stop) & (last >= c.start)
        peak, total, acc = tl.combine(
            merge, top, tl.sum(p, axis=1), weighted, when=seen, empty=(-tl.inf, 0.0, 0.0)
        )
    share = acc * (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]
    tl.store(out[t[:, None], head[:, None], d[None, :]], share, mask=live[:, None])


@kernel
def attention(
    q: tl.ptr[tl.f32, T, G * GROUP, D],
    k: tl.ptr[tl.f32, S, G, D],
    v: tl.ptr[tl.f32, S, G, D],
    starts: tl.ptr[tl.i32, B + 1],
    keys: tl.ptr[tl.i32, B, 2],
    out: tl.out[tl.f32, T, G * GROUP, D],
    longest: tl.i32[0, 1048576],
    most: tl.i32[0, 1073741823],
    left: tl.i32[0, 1073741823],
    right: tl.i32[0, 1073741823],
    scale: tl.f32,
    D: tl.const,
    GROUP: tl.const[1, 2, 3, 4] = 1,
    CAP: tl.const = 0.0,
    BR: tl.schedule[1, 2, 3, 4, 8, 16] = 4,
):
    """out = softmax(cap(scale * q k^T)) v for packed sequences, K and V in float32.

    Sequence s has the query rows starts[s]..starts[s+1]-1, at most ``longest`` of them, and the
    keys[s, 1] cache rows from keys[s, 0] on, at most ``most`` of them (a bound, such as the length
    of a cache's slot); its last query is at its last key. A query at position p sees the keys
    p - left .. p + right: right = 0 is causal, left = W - 1 a window of W keys, both large
    bidirectional. CAP != 0 bounds scores by CAP * tanh(score / CAP). A query without a visible key
    gives zeros. K and V must be finite.
    """
    r = tl.block(0, longest * GROUP, BR)
    g = tl.program_id(1, G)
    s = tl.program_id(2, B)
    attend(
        q, k, v, starts, keys, out, longest, most, r, g, s, left, right, scale, T, S, D, GROUP, CAP
    )


@kernel
def attention_f16(
    q: tl.ptr[tl.f32, T, G * GROUP, D],
    k: tl.ptr[tl.f16, S, G, D],
    v: tl.ptr[tl.f16, S, G, D],
    starts: tl.ptr[tl.i32, B + 1],
    keys: tl.ptr[tl.i32, B, 2],
    out: tl.out[tl.f32, T, G * GROUP, D],
    longest: tl.i32[0, 1048576],
    most: tl.i32[0, 1073741823],
    left: tl.i32[0, 1073741823],
    right: tl.i32[0, 1073741823],
    scale: tl.f32,
    D: tl.const,
    GROUP: tl.const[1, 2, 3, 4] = 1,
    CAP: tl.const = 0.0,
    BR: tl.schedule[1, 2, 3, 4, 8, 16] = 4,
):
    """The same as ``attention`` with K and V in float16."""
    r = tl.block(0, longest * GROUP, BR)
    g = tl.program_id(1, G)
    s = tl.program_id(2, B)
    attend(
        q, k, v, starts, keys, out, longest, most, r, g, s, left, right, scale, T, S, D, GROUP, CAP
    )
