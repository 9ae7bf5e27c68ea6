"""Rows of a matrix by number."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def take_rows(
    x: tl.ptr[tl.f32, M, K],
    rows: tl.ptr[tl.i32, R],
    y: tl.out[tl.f32, R, K],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y[r] = x[rows[r]]; a row outside 0..M-1 gives zeros."""
    k = tl.block(0, K, BLOCK)
    r = tl.program_id(1, R)
    row = tl.load(rows[r])
    there = (k < K) & (row >= 0) & (row < M)
    tl.store(y[r, k], tl.load(x[row, k], mask=there, other=0.0), mask=k < K)


@kernel
def add_rows(
    x: tl.ptr[tl.f32, M, K],
    table: tl.ptr[tl.f32, R, K],
    rows: tl.ptr[tl.i32, M],
    y: tl.out[tl.f32, M, K],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y[m] = x[m] + table[rows[m]]; a row outside 0..R-1 adds zeros."""
    k = tl.block(0, K, BLOCK)
    m = tl.program_id(1, M)
    row = tl.load(rows[m])
    there = (k < K) & (row >= 0) & (row < R)
    added = tl.load(table[row, k], mask=there, other=0.0)
    tl.store(y[m, k], tl.load(x[m, k], mask=k < K) + added, mask=k < K)
