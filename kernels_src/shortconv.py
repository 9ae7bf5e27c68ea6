"""Gated short convolutions of LFM2, a channel at a time, over packed sequences.

A row of ``bcx`` holds B, C and X side by side; the result is C * conv(B * X). Taps are added oldest
first: one product, then an fma for each further tap. A program takes some channels of a whole
sequence and walks its rows, so it may read the state and then replace it.
"""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def gated_input(bcx, t, d, there, D):
    """B * X at row ``t``, 0 where it is not ``there``."""
    b = tl.load(bcx[t, d], mask=there, other=0.0)
    return b * tl.load(bcx[t, 2 * D + d], mask=there, other=0.0)


@kernel
def held(bcx, state, slot, begin, t, back, position, d, D, SLOTS, L):
    """B * X ``back`` rows before row ``t``: of this pass or the state, 0 before position 0."""
    known = (d < D) & (position >= back)
    own = t - back >= begin
    new = gated_input(bcx, t - back, d, known & own, D)
    kept = known & (slot >= 0) & (slot < SLOTS) & (t - back < begin) & (t >= begin)
    old = tl.load(state[slot, L - 1 + (t - begin) - back, d], mask=kept, other=0.0)
    return tl.where(own, new, old)


@kernel
def convolved(bcx, w, state, slot, begin, t, position, d, T, D, SLOTS, L):
    """C * conv(B * X) at row ``t``."""
    acc = held(bcx, state, slot, begin, t, L - 1, position, d, D, SLOTS, L)
    acc = acc * tl.load(w[d, 0], mask=d < D, other=0.0)
    for k in tl.static_range(1, L):
        x = held(bcx, state, slot, begin, t, L - 1 - k, position, d, D, SLOTS, L)
        acc = tl.fma(x, tl.load(w[d, k], mask=d < D, other=0.0), acc)
    return tl.load(bcx[t, D + d], mask=d < D, other=0.0) * acc


@kernel
def keep_state(bcx, state, slot, begin, end, positions, d, T, D, SLOTS, L):
    """The last L - 1 columns of what was held and what is new; a column is read before any
    earlier one is written."""
    if end > begin:
        position = tl.load(positions[end - 1])
        there = (d < D) & (slot >= 0) & (slot < SLOTS)
        for i in tl.static_range(L - 1):
            x = held(bcx, state, slot, begin, end - 1, L - 2 - i, position, d, D, SLOTS, L)
            tl.store(state[slot, i, d], x, mask=there)


@kernel
def shortconv(
    bcx: tl.ptr[tl.f32, T, 3 * D],
    w: tl.ptr[tl.f32, D, L],
    state: tl.inout[tl.f32, SLOTS, L - 1, D],
    starts: tl.ptr[tl.i32, B + 1],
    slots: tl.ptr[tl.i32, B],
    positions: tl.ptr[tl.i32, T],
    y: tl.out[tl.f32, T, D],
    L: tl.const,
    BLOCK: tl.schedule[16, 32, 64] = 32,
):
    """y = C * conv(B * X), causal; column k of ``w`` weighs the value L - 1 - k rows back.

    Sequence s has the rows starts[s] to starts[s + 1] - 1; before its first row lies what
    state[slots[s]] holds, oldest first, and the state is its last L - 1 values of B * X afterwards.
    Values before position 0 count as 0, whatever the state holds. Rows of no sequence are left as
    they are; a sequence whose slot is outside 0..SLOTS-1 starts from zeros and keeps no state.
    """
    d = tl.block(0, D, BLOCK)
    s = tl.program_id(1, B)
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    end = tl.clamp(tl.load(starts[s + 1]), 0, T)
    slot = tl.load(slots[s])
    for t in range(begin, end):
        position = tl.load(positions[t])
        v = convolved(bcx, w, state, slot, begin, t, position, d, T, D, SLOTS, L)
        tl.store(y[t, d], v, mask=d < D)
    keep_state(bcx, state, slot, begin, end, positions, d, T, D, SLOTS, L)


@kernel
def shortconv_a8(
    bcx: tl.ptr[tl.f32, T, 3 * D],
    w: tl.ptr[tl.f32, D, L],
    state: tl.inout[tl.f32, SLOTS, L - 1, D],
    starts: tl.ptr[tl.i32, B + 1],
    slots: tl.ptr[tl.i32, B],
    positions: tl.ptr[tl.i32, T],
    y: tl.a8_out[T, D],
    L: tl.const,
):
    """The bits of ``shortconv``, then of ``quantise``."""
    kb = tl.program_id(0, tl.cdiv(D, 32))
    s = tl.program_id(1, B)
    d = kb * 32 + tl.arange(0, 32)
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    end = tl.clamp(tl.load(starts[s + 1]), 0, T)
    slot = tl.load(slots[s])
    for t in range(begin, end):
        position = tl.load(positions[t])
        v = convolved(bcx, w, state, slot, begin, t, position, d, T, D, SLOTS, L)
        q, scale = tl.quantize_i8(v)
        tl.store_block(y, t, kb, q, scale)
    keep_state(bcx, state, slot, begin, end, positions, d, T, D, SLOTS, L)


@kernel
def neighbour(bcx, row, first, end, d, D):
    """B * X at row ``row`` of a sequence's rows, 0 outside them."""
    return gated_input(bcx, row, d, (d < D) & (row >= first) & (row >= 0) & (row < end), D)


@kernel
def centred(bcx, w, positions, begin, end, t, d, D, L):
    """C * conv(B * X) at row ``t`` with as many taps before it as behind."""
    first = begin
    if positions is not None:
        first = tl.minimum(begin, t - tl.load(positions[t]))
    acc = neighbour(bcx, t - L // 2, first, end, d, D)
    acc = acc * tl.load(w[d, 0], mask=d < D, other=0.0)
    for k in tl.static_range(1, L):
        x = neighbour(bcx, t - L // 2 + k, first, end, d, D)
        acc = tl.fma(x, tl.load(w[d, k], mask=d < D, other=0.0), acc)
    return tl.load(bcx[t, D + d], mask=d < D, other=0.0) * acc


@kernel
def shortconv_centred(
    bcx: tl.ptr[tl.f32, T, 3 * D],
    w: tl.ptr[tl.f32, D, L],
    starts: tl.ptr[tl.i32, N],
    y: tl.out[tl.f32, T, D],
    L: tl.const,
    positions: tl.ptr[tl.i32, T] = None,
    BLOCK: tl.schedule[16, 32, 64] = 32,
):
    """y = C * conv(B * X) for two-sided models: column k of ``w`` weighs row t + k - L // 2.

    Values outside the own sequence count as 0. Where ``positions`` are given and a sequence begins
    at one above 0, it continues the rows above it: they count for its first rows, while its own do
    not count for theirs. Rows of no sequence are left as they are.
    """
    d = tl.block(0, D, BLOCK)
    s = tl.program_id(1, N - 1)
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    end = tl.clamp(tl.load(starts[s + 1]), 0, T)
    for t in range(begin, end):
        tl.store(y[t, d], centred(bcx, w, positions, begin, end, t, d, D, L), mask=d < D)


@kernel
def shortconv_centred_a8(
    bcx: tl.ptr[tl.f32, T, 3 * D],
    w: tl.ptr[tl.f32, D, L],
    starts: tl.ptr[tl.i32, N],
    y: tl.a8_out[T, D],
    L: tl.const,
    positions: tl.ptr[tl.i32, T] = None,
):
    """The bits of ``shortconv_centred``, then of ``quantise``."""
    kb = tl.program_id(0, tl.cdiv(D, 32))
    s = tl.program_id(1, N - 1)
    d = kb * 32 + tl.arange(0, 32)
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    end = tl.clamp(tl.load(starts[s + 1]), 0, T)
    for t in range(begin, end):
        q, scale = tl.quantize_i8(centred(bcx, w, positions, begin, end, t, d, D, L))
        tl.store_block(y, t, kb, q, scale)
