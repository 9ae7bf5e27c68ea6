"""int8 products of plain matrices: rows of several blocks, and rows that start at any byte."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def tile_product(a, b, out, m, n, k):
    i = tl.arange(0, 2)
    j = tl.arange(0, 16)
    x = tl.load(a[m, i[:, None], k[None, :]])
    y = tl.load(b[n, j[:, None], k[None, :]])
    tl.store(out[m, i[:, None], n, j[None, :]], tl.dot_i8(x, y.T))


@kernel
def long_rows(
    a: tl.ptr[tl.i8, M, 2, 96],
    b: tl.ptr[tl.i8, N, 16, 96],
    out: tl.out[tl.i32, M, 2, N, 16],
):
    """out = a @ b.T"""
    m = tl.program_id(0, M)
    n = tl.program_id(1, N)
    tile_product(a, b, out, m, n, tl.arange(0, 96))


@kernel
def unaligned_rows(
    a: tl.ptr[tl.i8, M, 2, 97],
    b: tl.ptr[tl.i8, N, 16, 97],
    out: tl.out[tl.i32, M, 2, N, 16],
):
    """out = a[:, 1:] @ b[:, 1:].T"""
    m = tl.program_id(0, M)
    n = tl.program_id(1, N)
    tile_product(a, b, out, m, n, 1 + tl.arange(0, 96))
