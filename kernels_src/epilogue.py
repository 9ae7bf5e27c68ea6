"""What follows a matrix product before its result is stored."""

from __future__ import annotations

from ferro.dsl import kernel, tl
from kernels_src.activations import activate


@kernel
def biased(acc, bias, n, N):
    """acc + bias for the columns n, where there is a bias."""
    if bias is not None:
        acc = acc + tl.load(bias[n], mask=n < N, other=0.0)[None, :]
    return acc


@kernel
def store_result(acc, y, bias, residual, m, n, M, N, ACT):
    """Stores ACT(acc + bias) + residual for the rows m and columns n; bias and residual may be
    absent."""
    inside = (m < M)[:, None] & (n < N)[None, :]
    acc = activate(biased(acc, bias, n, N), ACT)
    if residual is not None:
        acc = acc + tl.load(residual[m[:, None], n[None, :]], mask=inside, other=0.0)
    tl.store(y[m[:, None], n[None, :]], acc, mask=inside)


@kernel
def gated_product(gate, up, gate_bias, up_bias, n, N, ACT):
    """ACT(gate + gate_bias) * (up + up_bias) for the columns n; the biases may be absent."""
    return activate(biased(gate, gate_bias, n, N), ACT) * biased(up, up_bias, n, N)


@kernel
def store_gated(gate, up, y, gate_bias, up_bias, m, n, M, N, ACT):
    """Stores the gated product for the rows m and columns n."""
    v = gated_product(gate, up, gate_bias, up_bias, n, N, ACT)
    tl.store(y[m[:, None], n[None, :]], v, mask=(m < M)[:, None] & (n < N)[None, :])


@kernel
def store_gated_a8(gate, up, y, gate_bias, up_bias, m, block, M, N, ACT):
    """Stores the gated product of one block of 32 columns, quantised; what is behind N is 0."""
    n = block * 32 + tl.arange(0, 32)
    v = gated_product(gate, up, gate_bias, up_bias, n, N, ACT)
    q, s = tl.quantize_i8(tl.where((n < N)[None, :], v, 0.0))
    tl.store_block(y, m, block, q, s, mask=m < M)
