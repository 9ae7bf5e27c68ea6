"""What follows a matrix product before its result is stored."""

from __future__ import annotations

from ferro.dsl import kernel, tl
from kernels_src.activations import activate


@kernel
def finish(acc, y, bias, residual, m, n, M, N, ACT):
    """Stores ACT(acc + bias) + residual for the rows m and columns n; bias and residual may be
    absent."""
    inside = (m < M)[:, None] & (n < N)[None, :]
    if bias is not None:
        acc = acc + tl.load(bias[n], mask=n < N, other=0.0)[None, :]
    acc = activate(acc, ACT)
    if residual is not None:
        acc = acc + tl.load(residual[m[:, None], n[None, :]], mask=inside, other=0.0)
    tl.store(y[m[:, None], n[None, :]], acc, mask=inside)
