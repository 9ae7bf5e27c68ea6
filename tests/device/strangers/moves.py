"""Kernels that move, compare and count rather than compute."""

from __future__ import annotations

from ferro.dsl import f32, i32, kernel, tl


@kernel
def better(value, index, new_value, new_index):
    closer = new_value > value
    return tl.where(closer, new_value, value), tl.where(closer, new_index, index)


@kernel
def top_1(x: tl.ptr[f32, M, N], index: tl.out[i32, M], value: tl.out[f32, M]):
    """The largest element of each row and the lowest place where it stands."""
    row = tl.program_id(0, M)
    for c in tl.chunks(N, 1024):
        j = c.start + tl.arange(0, 1024)
        v = tl.load(x[row, j], mask=j < c.stop, other=-tl.inf)
        best = tl.max(v, axis=0)
        place = c.start + tl.argmax(v, axis=0)
        top, where = tl.combine(better, best, place, empty=(-tl.inf, -1))
    tl.store(index[row], where)
    tl.store(value[row], top)


@kernel
def checksum(x: tl.ptr[i32, M, N], y: tl.out[tl.u32, M], BLOCK: tl.schedule[32, 64, 128] = 64):
    """A hash of each row that depends on the order of its elements."""
    row = tl.program_id(0, M)
    total = tl.full([], 0, tl.u32)
    for j0 in range(0, N, BLOCK):
        j = j0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, j], mask=j < N, other=0).bitcast(tl.u32)
        v = (v ^ (j.to(tl.u32) * 2654435769)) * 2246822519
        v = v ^ (v >> 15)
        total = total + tl.sum(tl.where(j < N, v, 0), axis=0)
    tl.store(y[row], total ^ (total >> 13))


@kernel
def permute_rows(
    x: tl.ptr[f32, M, N],
    places: tl.ptr[i32, M],
    gathered: tl.out[f32, M, N],
    scattered: tl.out[f32, M, N],
    BM: tl.schedule[1, 2, 4] = 2,
    BN: tl.schedule[16, 64] = 16,
):
    """gathered[m] = x[places[m]] and scattered[places[m]] = x[m]; places outside are left alone."""
    n = tl.block(0, N, BN)
    m = tl.block(1, M, BM)
    at = tl.load(places[m], mask=m < M, other=-1)
    inside = ((m < M) & (at >= 0) & (at < M))[:, None] & (n < N)[None, :]
    tl.store(
        gathered[m[:, None], n[None, :]],
        tl.load(x[at[:, None], n[None, :]], mask=inside),
        mask=inside,
    )
    tl.store(
        scattered[at[:, None], n[None, :]],
        tl.load(x[m[:, None], n[None, :]], mask=inside),
        mask=inside,
    )


@kernel
def transpose(
    x: tl.ptr[f32, M, N],
    y: tl.out[f32, N, M],
    BM: tl.schedule[8, 16, 32] = 16,
    BN: tl.schedule[8, 16, 32] = 16,
):
    m = tl.block(0, M, BM)
    n = tl.block(1, N, BN)
    tile = tl.load(x[m[:, None], n[None, :]], mask=(m < M)[:, None] & (n < N)[None, :], other=0.0)
    tl.store(y[n[:, None], m[None, :]], tile.T, mask=(n < N)[:, None] & (m < M)[None, :])


@kernel
def dequantise(w: tl.q8[N, K], y: tl.out[f32, N, K], BK: tl.schedule[32, 64] = 32):
    """A float32 copy of quantised weights."""
    k = tl.block(0, K, BK)
    n = tl.program_id(1, N)
    tl.store(y[n, k], tl.load(w[n, k], mask=k < K, other=0.0), mask=k < K)


@kernel
def absmax(
    x: tl.ptr[tl.f16, M, N],
    y: tl.out[f32, N],
    BM: tl.schedule[1, 4, 8] = 4,
    BN: tl.schedule[16, 32, 64] = 32,
):
    """The largest magnitude of each column."""
    n = tl.block(0, N, BN)
    best = tl.zeros([BN], f32)
    for m0 in range(0, M, BM):
        m = m0 + tl.arange(0, BM)
        inside = (m < M)[:, None] & (n < N)[None, :]
        v = tl.load(x[m[:, None], n[None, :]], mask=inside, other=0.0).to(f32)
        best = tl.maximum(best, tl.max(tl.abs(v), axis=0))
    tl.store(y[n], best, mask=n < N)
