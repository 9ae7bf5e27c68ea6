"""One row for each sequence of a pass."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def pool_mean(
    x: tl.ptr[tl.f32, T, K],
    starts: tl.ptr[tl.i32, B + 1],
    y: tl.out[tl.f32, B, K],
    BLOCK: tl.schedule[16, 32, 64] = 64,
):
    """y[s] = mean of the rows starts[s] to starts[s + 1] - 1 of x, zeros if there are none.

    Rows are added in chunks of 64 by their place in their own sequence, and chunks in ascending
    order: a mean does not depend on what else is in the pass.
    """
    k = tl.block(0, K, BLOCK)
    s = tl.program_id(1, B)
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    count = tl.maximum(tl.clamp(tl.load(starts[s + 1]), 0, T) - begin, 0)
    for c in tl.chunks(count, 64):
        part = tl.zeros([BLOCK], tl.f32)
        for t in range(c.start, c.stop):
            there = (k < K) & (begin + t < T)
            part = part + tl.load(x[begin + t, k], mask=there, other=0.0)
        total = tl.combine(tl.add, part)
    tl.store(y[s, k], total / tl.maximum(count, 1).to(tl.f32), mask=k < K)
