"""From the product of queries, keys and values to attention's inputs: norm, rotation, cache.

A program takes one head of one row. Queries go to a buffer of the pass; keys and values go to rows
of the cache, in the dtype that the cache stores.
"""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def turned(x, cos, sin, p, there, C, PAIRS):
    """``x`` [2 C] turned by row ``p`` of the tables, or as it is."""
    i = tl.arange(0, C)
    co = tl.load(cos[p, i], mask=there, other=1.0)
    si = tl.load(sin[p, i], mask=there, other=0.0)
    how = "halves" if PAIRS == "halves" else "pairs"
    a, b = tl.split(x, how=how)
    return tl.where(there, tl.join(tl.fma(a, co, -(b * si)), tl.fma(b, co, a * si), how=how), x)


@kernel
def store_head(x, cache, scales, row, g, START, STOP, CACHE, there):
    """Writes elements START to STOP - 1 of one head of a cache row; int8 blocks have ``scales``."""
    d = tl.arange(START, STOP)
    if CACHE == "i8":
        q, scale = tl.quantize_i8(tl.reshape(x, [-1, 32]))
        tl.store(cache[row, g, d], tl.reshape(q, [-1]), mask=there)
        tl.store(scales[row, g, tl.arange(START // 32, STOP // 32)], scale, mask=there)
    elif CACHE == "f16":
        tl.store(cache[row, g, d], x.to(tl.f16), mask=there)
    else:
        tl.store(cache[row, g, d], x, mask=there)


@kernel
def heads(
    qkv, q_norm, k_norm, cos, sin, positions, rows, q, k, v, k_scale, v_scale, eps,
    T, H, G, P, S, C, D, PAIRS, NORM_V, CACHE,
):  # fmt: skip
    tl.static_assert(2 * C <= D, "the tables turn more elements than a head has")
    tl.static_assert(CACHE != "i8" or (D % 32 == 0 and C % 16 == 0), "int8 takes blocks of 32")
    h = tl.program_id(0, H + 2 * G)
    t = tl.program_id(1, T)
    is_q = h < H
    is_k = (h >= H) & (h < H + G)
    is_v = h >= H + G
    p = tl.load(positions[t])
    row = tl.load(rows[t])
    placed = (p >= 0) & (p < P)
    kept = placed & (row >= 0) & (row < S)

    whole = tl.load(qkv[t, h * D + tl.arange(0, D)])
    scale = tl.rsqrt(tl.sum(whole * whole) / tl.full([], D, tl.f32) + eps)
    # What turns, then the rest of the head, if there is one.
    for part in tl.static_range(2 if 2 * C < D else 1):
        START = 0 if part == 0 else 2 * C
        STOP = 2 * C if part == 0 else D
        d = tl.arange(START, STOP)
        x = tl.load(qkv[t, h * D + d])
        if q_norm is not None:
            x = tl.where(is_q, x * scale * tl.load(q_norm[d]), x)
        if k_norm is not None:
            x = tl.where(is_k, x * scale * tl.load(k_norm[d]), x)
        if NORM_V:
            x = tl.where(is_v, x * scale, x)
        if part == 0:
            x = turned(x, cos, sin, p, placed & (h < H + G), C, PAIRS)
        tl.store(q[t, h, d], x, mask=is_q)
        store_head(x, k, k_scale, row, h - H, START, STOP, CACHE, kept & is_k)
        store_head(x, v, v_scale, row, h - H - G, START, STOP, CACHE, kept & is_v)


@kernel
def heads_f32(
    qkv: tl.ptr[tl.f32, T, (H + 2 * G) * D],
    cos: tl.ptr[tl.f32, P, C],
    sin: tl.ptr[tl.f32, P, C],
    positions: tl.ptr[tl.i32, T],
    rows: tl.ptr[tl.i32, T],
    q: tl.out[tl.f32, T, H, D],
    k: tl.out[tl.f32, S, G, D],
    v: tl.out[tl.f32, S, G, D],
    eps: tl.f32,
    C: tl.const,
    D: tl.const,
    q_norm: tl.ptr[tl.f32, D] = None,
    k_norm: tl.ptr[tl.f32, D] = None,
    PAIRS: tl.const["halves", "interleaved"] = "halves",
    NORM_V: tl.const[False, True] = False,
):
    """Splits ``qkv`` into heads: RMS norm, rotation, keys and values to a cache.

    A row holds H heads of queries, G of keys and G of values, D elements each. Queries and keys are
    normed where ``q_norm`` and ``k_norm`` give weights, values (without weights) where NORM_V. The
    first 2 C elements of queries and keys then turn by row positions[t] of the tables; pairs are
    (i, i + C) for "halves" and (2 i, 2 i + 1) for "interleaved". Keys and values of row t go to row
    rows[t] of the cache, nowhere if it has no such row. A row whose position is outside the tables
    does not turn and goes nowhere. No two rows may go to one row of the cache.
    """
    heads(
        qkv, q_norm, k_norm, cos, sin, positions, rows, q, k, v, None, None, eps,
        T, H, G, P, S, C, D, PAIRS, NORM_V, "f32",
    )  # fmt: skip


@kernel
def heads_f16(
    qkv: tl.ptr[tl.f32, T, (H + 2 * G) * D],
    cos: tl.ptr[tl.f32, P, C],
    sin: tl.ptr[tl.f32, P, C],
    positions: tl.ptr[tl.i32, T],
    rows: tl.ptr[tl.i32, T],
    q: tl.out[tl.f32, T, H, D],
    k: tl.out[tl.f16, S, G, D],
    v: tl.out[tl.f16, S, G, D],
    eps: tl.f32,
    C: tl.const,
    D: tl.const,
    q_norm: tl.ptr[tl.f32, D] = None,
    k_norm: tl.ptr[tl.f32, D] = None,
    PAIRS: tl.const["halves", "interleaved"] = "halves",
    NORM_V: tl.const[False, True] = False,
):
    """The same as ``heads_f32`` with a cache in float16."""
    heads(
        qkv, q_norm, k_norm, cos, sin, positions, rows, q, k, v, None, None, eps,
        T, H, G, P, S, C, D, PAIRS, NORM_V, "f16",
    )  # fmt: skip


@kernel
def heads_i8(
    qkv: tl.ptr[tl.f32, T, (H + 2 * G) * D],
    cos: tl.ptr[tl.f32, P, C],
    sin: tl.ptr[tl.f32, P, C],
    positions: tl.ptr[tl.i32, T],
    rows: tl.ptr[tl.i32, T],
    q: tl.out[tl.f32, T, H, D],
    k: tl.out[tl.i8, S, G, D],
    v: tl.out[tl.i8, S, G, D],
    k_scale: tl.out[tl.f32, S, G, D // 32],
    v_scale: tl.out[tl.f32, S, G, D // 32],
    eps: tl.f32,
    C: tl.const,
    D: tl.const,
    q_norm: tl.ptr[tl.f32, D] = None,
    k_norm: tl.ptr[tl.f32, D] = None,
    PAIRS: tl.const["halves", "interleaved"] = "halves",
    NORM_V: tl.const[False, True] = False,
):
    """The same with a cache in int8: blocks of 32 along a head by the rule of ``quantize_i8``."""
    heads(
        qkv, q_norm, k_norm, cos, sin, positions, rows, q, k, v, k_scale, v_scale, eps,
        T, H, G, P, S, C, D, PAIRS, NORM_V, "i8",
    )  # fmt: skip
