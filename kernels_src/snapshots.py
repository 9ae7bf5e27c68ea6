"""Rows from one buffer to another, as they are: what a slot of a cache holds, and back."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def copied_rows(x, y, x_row, y_row, count, M, N, K, BLOCK, F16):
    k = tl.block(0, K, BLOCK)
    r = tl.program_id(1, count)
    there = (k < K) & (x_row + r < M) & (y_row + r < N)
    v = tl.load(x[x_row + r, k], mask=there, other=0)
    tl.store(y[y_row + r, k], v.to(tl.f16) if F16 else v, mask=there)


@kernel
def copy_rows_f32(
    x: tl.ptr[tl.f32, M, K],
    y: tl.out[tl.f32, N, K],
    x_row: tl.i32[0, 1073741823],
    y_row: tl.i32[0, 1073741823],
    count: tl.i32[0, 1073741823],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y[y_row + r] = x[x_row + r] for ``count`` rows, as far as both have them."""
    copied_rows(x, y, x_row, y_row, count, M, N, K, BLOCK, False)


@kernel
def copy_rows_f16(
    x: tl.ptr[tl.f16, M, K],
    y: tl.out[tl.f16, N, K],
    x_row: tl.i32[0, 1073741823],
    y_row: tl.i32[0, 1073741823],
    count: tl.i32[0, 1073741823],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """The same in float16."""
    copied_rows(x, y, x_row, y_row, count, M, N, K, BLOCK, True)


@kernel
def copy_rows_i8(
    x: tl.ptr[tl.i8, M, K],
    y: tl.out[tl.i8, N, K],
    x_row: tl.i32[0, 1073741823],
    y_row: tl.i32[0, 1073741823],
    count: tl.i32[0, 1073741823],
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """The same in int8."""
    copied_rows(x, y, x_row, y_row, count, M, N, K, BLOCK, False)
