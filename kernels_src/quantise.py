"""float32 rows to block-quantised activations."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def quantise(
    x: tl.ptr[tl.f32, M, K],
    y: tl.a8_out[M, K],
    BM: tl.schedule[1, 2, 4, 8] = 1,
):
    """y = x in blocks of 32: scale = max|x| / 127, q = rint(x * (127 / max|x|))"""
    kb = tl.program_id(0, tl.cdiv(K, 32))
    m = tl.block(1, M, BM)
    k = kb * 32 + tl.arange(0, 32)
    seen = (m < M)[:, None] & (k < K)[None, :]
    v = tl.load(x[m[:, None], k[None, :]], mask=seen, other=0.0)
    q, s = tl.quantize_i8(v)
    tl.store_block(y, m, kb, q, s, mask=m < M)
