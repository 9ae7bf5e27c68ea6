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
def cached(cache, scales, row, g, there, D):
    """Head ``g`` of cache rows as float32, zeros where they are not ``there``."""
    d = tl.arange(0, D)
    x = tl.load(cache[row[:, None], g, d[None, :]], mask=there[:, None], other=0).to(tl.f32)
    if scales is not None:
        block = tl.arange(0, D // 32)
        s = tl.load(scales[row[:, None], g, block[None, :]], mask=there[:, None], other=0.0)
        x = tl.reshape(tl.reshape(x, [-1, D // 32, 32]) * s[:, :, None], [-1, D])
    return x


@kernel
def attend(
    q, k, v, k_scale, v_scale, starts, keys, out, longest, most, left, right, scale,
    B, T, S, G, D, GROUP, CAP, BR,
):  # fmt: skip
    # A row r is one query head of one of 64 queries; the heads that share K and V sit side by side.
    rows = tl.minimum(longest, 64) * GROUP
    r = tl.block(0, rows, BR)
    part = tl.program_id(1, G * tl.cdiv(longest, 64))
    s = tl.program_id(2, B)
    g = part % G
    block = part // G * 64
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    queries = tl.clamp(tl.load(starts[s + 1]), 0, T) - begin
    base = tl.clamp(tl.load(keys[s, 0]), 0, S)
    count = tl.clamp(tl.load(keys[s, 1]), 0, tl.minimum(S - base, most))

    query = block + r // GROUP
    head = g * GROUP + r % GROUP
    t = begin + query
    live = (r < rows) & (query < queries) & (query < longest) & (t < T)
    d = tl.arange(0, D)
    qt = tl.load(q[t[:, None], head[:, None], d[None, :]], mask=live[:, None], other=0.0)

    # Row r sees the keys first..last of its sequence: the last query is at the last key.
    position = count - queries + query
    first = tl.where(live, tl.maximum(position - left, 0), count)
    last = tl.minimum(position + right, count - 1)

    # Chunks that no query of the block sees are left out by all rows alike.
    lowest = tl.maximum(count - queries + block - left, 0) // 64 * 64
    end = tl.minimum(block + 64, queries)
    highest = tl.minimum(count - queries + end - 1 + right, count - 1)
    length = tl.where(end > block, highest + 1 - lowest, 0)
    for c in tl.chunks(tl.clamp(length, 0, most), 64):
        start = lowest + c.start
        stop = lowest + c.stop
        key = start + tl.arange(0, 64)
        row = base + key
        there = (key < stop) & (row < S)
        kt = cached(k, k_scale, row, g, there, D)
        vt = cached(v, v_scale, row, g, there, D)
        visible = (key[None, :] >= first[:, None]) & (key[None, :] <= last[:, None])
        score = soft_cap(tl.dot(qt, kt.T) * scale, CAP)
        top = tl.max(score, axis=1, mask=visible)
        p = tl.where(visible, tl.exp(score - top[:, None]), 0.0)
        # Hidden keys add +0 or -0 by the sign of v; + 0.0 leaves one zero of the two.
        weighted = tl.dot(p, vt) + 0.0
        seen = (first < stop) & (last >= start)
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
    GROUP: tl.const[1, 2, 3, 4, 5, 6, 7, 8] = 1,
    CAP: tl.const = 0.0,
    BR: tl.schedule[1, 2, 3, 4, 5, 6, 8, 12, 16] = 4,
):
    """out = softmax(cap(scale * q k^T)) v for packed sequences, K and V in float32.

    Sequence s has the query rows starts[s]..starts[s+1]-1, at most ``longest`` of them, and the
    keys[s, 1] cache rows from keys[s, 0] on, at most ``most`` of them (a bound, such as the length
    of a cache's slot); its last query is at its last key. A query at position p sees the keys
    p - left .. p + right: right = 0 is causal, left = W - 1 a window of W keys, both large
    bidirectional. CAP != 0 bounds scores by CAP * tanh(score / CAP). A query without a visible key
    gives zeros. K and V must be finite.
    """
    attend(
        q, k, v, None, None, starts, keys, out, longest, most, left, right, scale,
        B, T, S, G, D, GROUP, CAP, BR,
    )  # fmt: skip


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
    GROUP: tl.const[1, 2, 3, 4, 5, 6, 7, 8] = 1,
    CAP: tl.const = 0.0,
    BR: tl.schedule[1, 2, 3, 4, 5, 6, 8, 12, 16] = 4,
):
    """The same as ``attention`` with K and V in float16."""
    attend(
        q, k, v, None, None, starts, keys, out, longest, most, left, right, scale,
        B, T, S, G, D, GROUP, CAP, BR,
    )  # fmt: skip


@kernel
def attention_i8(
    q: tl.ptr[tl.f32, T, G * GROUP, D],
    k: tl.ptr[tl.i8, S, G, D],
    v: tl.ptr[tl.i8, S, G, D],
    k_scale: tl.ptr[tl.f32, S, G, D // 32],
    v_scale: tl.ptr[tl.f32, S, G, D // 32],
    starts: tl.ptr[tl.i32, B + 1],
    keys: tl.ptr[tl.i32, B, 2],
    out: tl.out[tl.f32, T, G * GROUP, D],
    longest: tl.i32[0, 1048576],
    most: tl.i32[0, 1073741823],
    left: tl.i32[0, 1073741823],
    right: tl.i32[0, 1073741823],
    scale: tl.f32,
    D: tl.const,
    GROUP: tl.const[1, 2, 3, 4, 5, 6, 7, 8] = 1,
    CAP: tl.const = 0.0,
    BR: tl.schedule[1, 2, 3, 4, 5, 6, 8, 12, 16] = 4,
):
    """The same as ``attention`` with K and V in int8, blocks of 32 along a head: q * scale."""
    tl.static_assert(D % 32 == 0, "int8 takes blocks of 32")
    attend(
        q, k, v, k_scale, v_scale, starts, keys, out, longest, most, left, right, scale,
        B, T, S, G, D, GROUP, CAP, BR,
    )  # fmt: skip
