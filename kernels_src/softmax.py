"""Softmax along rows of any length."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def merge(peak, total, new_peak, new_total):
    """Two (maximum, sum of exp(x - maximum)) pairs become one."""
    top = tl.maximum(peak, new_peak)
    return top, tl.fma(total, tl.exp(peak - top), new_total * tl.exp(new_peak - top))


@kernel
def softmax(
    x: tl.ptr[tl.f32, M, N],
    y: tl.out[tl.f32, M, N],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y = exp(x - max) / sum, a row at a time.

    Chunks of 4096 have their own maximum and sum, merged online in ascending order. A row that
    holds NaN or only -inf gives NaN.
    """
    row = tl.program_id(0, M)
    for c in tl.chunks(N, 4096):
        top = tl.full([], -tl.inf, tl.f32)
        for j0 in range(c.start, c.stop, BLOCK):
            j = j0 + tl.arange(0, BLOCK)
            v = tl.load(x[row, j], mask=j < c.stop, other=-tl.inf)
            top = tl.maximum(top, tl.max(v, axis=0, mask=j < c.stop))
        state = tl.partials()
        for j0 in range(c.start, c.stop, BLOCK):
            j = j0 + tl.arange(0, BLOCK)
            v = tl.load(x[row, j], mask=j < c.stop, other=-tl.inf)
            state = tl.accumulate(state, tl.exp(v - top), mask=j < c.stop)
        # A chunk of -inf only adds nothing, and its own maximum would make NaN of it.
        peak, total = tl.combine(
            merge, top, tl.finish(state), when=top != -tl.inf, empty=(-tl.inf, 0.0)
        )
    scale = 1.0 / total
    for j0 in range(0, N, BLOCK):
        j = j0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, j], mask=j < N)
        tl.store(y[row, j], tl.exp(v - peak) * scale, mask=j < N)
