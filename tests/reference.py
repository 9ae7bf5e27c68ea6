"""Independent references: what each kernel computes, in float64 or exact integers.

They share no code with Ferro and follow no order of summation: the interpreter is held to them
within rounding, devices are held to the interpreter in every bit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def f64(x: NDArray[np.generic]) -> Array:
    return np.asarray(x, dtype=np.float64)


def sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


def activate(x: Array, name: str) -> Array:
    """``x`` through "none", "relu", "silu", "gelu" or "gelu_tanh"."""
    match name:
        case "none":
            return x
        case "relu":
            return np.maximum(x, 0)
        case "silu":
            return x * sigmoid(x)
        case "gelu":
            return x * 0.5 * (1 + _erf(x / math.sqrt(2)))
        case "gelu_tanh":
            return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    raise ValueError(name)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rmsnorm(x: Array, w: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * w


def layernorm(x: Array, w: Array, b: Array, eps: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) * w + b


def dequantise(q: NDArray[np.int8], scale: NDArray[np.generic]) -> Array:
    """Rows of int8 with a scale for each block of 32."""
    blocks = f64(q).reshape(*scale.shape, 32) * f64(scale)[:, :, None]
    return blocks.reshape(q.shape)


def quantise(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """int8 blocks of 32 by the rule of the language, in float32 steps of one rounding each."""
    rows, cols = x.shape
    padded = np.zeros((rows, -(-cols // 32) * 32), np.float32)
    padded[:, :cols] = x
    blocks = padded.reshape(rows, padded.shape[1] // 32, 32)
    amax = np.abs(blocks).max(axis=-1)
    with np.errstate(all="ignore"):
        usable = np.isfinite(amax) & (amax >= np.float32(127 * 2.0**-126))
        scale = np.where(usable, amax / np.float32(127), np.float32(0))
        factor = np.where(usable, np.float32(127) / np.where(usable, amax, 1), 0)
        q = np.where(usable[..., None], np.rint(blocks * factor[..., None].astype(np.float32)), 0)
    scale = np.where(np.isfinite(amax), scale, np.float32("nan")).astype(np.float32)
    return q.astype(np.int8).reshape(padded.shape), scale


def rotary(
    x: Array, cos: Array, sin: Array, positions: NDArray[np.int32], heads: int, pairs: str
) -> Array:
    """``x`` [T, H, D] with the first 2 C elements of the first ``heads`` heads turned."""
    half = cos.shape[1]
    first = np.arange(half) * (2 if pairs == "interleaved" else 1)
    second = first + (1 if pairs == "interleaved" else half)
    out = x.copy()
    c, s = cos[positions][:, None, :], sin[positions][:, None, :]
    a, b = x[:, :heads, first], x[:, :heads, second]
    out[:, :heads, first] = a * c - b * s
    out[:, :heads, second] = b * c + a * s
    return out


def attention(
    q: Array,
    k: Array,
    v: Array,
    starts: NDArray[np.int32],
    keys: NDArray[np.int32],
    left: int,
    right: int,
    scale: float,
    cap: float = 0.0,
) -> Array:
    """Packed attention, a query head at a time; see kernels_src/attention.py for the arguments."""
    out = np.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    for s, (base, count) in enumerate(keys):
        begin, end = starts[s], starts[s + 1]
        for t in range(begin, end):
            position = count - (end - begin) + (t - begin)
            lo, hi = max(position - left, 0), min(position + right, count - 1)
            if hi < lo:
                continue
            rows = slice(base + lo, base + hi + 1)
            for h in range(q.shape[1]):
                score = k[rows, h // group] @ q[t, h] * scale
                if cap:
                    score = cap * np.tanh(score / cap)
                out[t, h] = softmax(score) @ v[rows, h // group]
    return out
