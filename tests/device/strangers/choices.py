"""Kernels about bools and narrow integers: choices between conditions, bytes kept in registers."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def conditions(x: tl.ptr[tl.i32, N], y: tl.out[tl.i32, N], z: tl.out[tl.f32, N]):
    """y counts conditions that hold; z is a condition that another one chooses."""
    n = tl.block(0, N, 32)
    v = tl.load(x[n], mask=n < N, other=0)
    low, high = v < 0, v > 100
    both = tl.where(v % 2 == 0, low, ~high)
    tl.store(y[n], low.to(tl.i32) + (low ^ high).to(tl.i32) * 2, mask=n < N)
    tl.store(z[n], (both | (v == 7)).to(tl.f32), mask=n < N)


@kernel
def byte_rows(
    x: tl.ptr[tl.i8, M, 4],
    w: tl.ptr[tl.i8, 64, 4],
    kept: tl.out[tl.i32, M, 4],
    y: tl.out[tl.i32, M, 64],
):
    """y = x @ w.T over four bytes; x, which a product and a store read, is kept."""
    m = tl.block(0, M, 64)
    b = tl.arange(0, 4)[None, :]
    n = tl.arange(0, 64)
    inside = (m < M)[:, None]
    v = tl.load(x[m[:, None], b], mask=inside, other=0)
    tl.store(kept[m[:, None], b], v.to(tl.i32), mask=inside)
    d = tl.dot_i8(v, tl.load(w[n[:, None], b]).T)
    tl.store(y[m[:, None], n[None, :]], d, mask=inside)
