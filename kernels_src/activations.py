"""Activation functions that other kernels call in their bodies or as an epilogue."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def silu(x):
    return x * tl.sigmoid(x)


@kernel
def gelu(x):
    """The exact form: x * normal distribution function of x."""
    return x * 0.5 * (1.0 + tl.erf(x * 0.70710678118654752))


@kernel
def gelu_tanh(x):
    cubic = tl.fma(x * x, x * 0.044715, x)
    return x * 0.5 * (1.0 + tl.tanh(cubic * 0.79788456080286536))


@kernel
def activate(x, ACT):
    """``x`` through the activation that ``ACT`` names; "none" returns it unchanged."""
    if ACT == "silu":
        x = silu(x)
    if ACT == "gelu":
        x = gelu(x)
    if ACT == "gelu_tanh":
        x = gelu_tanh(x)
    if ACT == "relu":
        x = tl.maximum(x, 0.0)
    return x
