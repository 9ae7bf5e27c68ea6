"""Rotary position embedding from tables of cosines and sines."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def rotary(
    x: tl.inout[tl.f32, T, H, D],
    cos: tl.ptr[tl.f32, P, C],
    sin: tl.ptr[tl.f32, P, C],
    positions: tl.ptr[tl.i32, T],
    heads: tl.i32[0, 65536],
    PAIRS: tl.const["halves", "interleaved"] = "halves",
    BLOCK: tl.schedule[16, 32, 64] = 32,
):
    """Rotates the first 2 C elements of the first ``heads`` heads of every row, in place.

    Pairs are (i, i + C) for "halves" and (2 i, 2 i + 1) for "interleaved"; row t turns by the
    table row positions[t], and stays as it is where that is outside the tables.
    """
    i = tl.block(0, C, BLOCK)
    h = tl.program_id(1, heads)
    t = tl.program_id(2, T)
    p = tl.load(positions[t])
    inside = (i < C) & (p >= 0) & (p < P)
    co = tl.load(cos[p, i], mask=inside, other=1.0)
    si = tl.load(sin[p, i], mask=inside, other=0.0)
    if PAIRS == "halves":
        first = i
        second = i + C
    else:
        first = 2 * i
        second = 2 * i + 1
    a = tl.load(x[t, h, first], mask=inside, other=0.0)
    b = tl.load(x[t, h, second], mask=inside, other=0.0)
    tl.store(x[t, h, first], tl.fma(a, co, -(b * si)), mask=inside)
    tl.store(x[t, h, second], tl.fma(b, co, a * si), mask=inside)
