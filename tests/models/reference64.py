"""Forward passes in float64, written from the formulas alone: what exact arithmetic would give.

Reads files with the `gguf` package and shares no code with Ferro.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray


class Model:
    """Tensors of a file as float64 and its numbers."""

    def __init__(self, path: str | Path) -> None:
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in reader.tensors
        }
        self.architecture = self.get("general.architecture")
        self.blocks = self.number("block_count")
        self.heads = self.number("attention.head_count")
        self.eps = self.number("attention.layer_norm_rms_epsilon")
        width = self.number("embedding_length")
        self.head = self.number("attention.key_length", width // self.heads)
        self.period = self.number("attention.sliding_window_pattern", 6)
        self.base = self.number("rope.freq_base", 10000.0)

    def get(self, key: str) -> Any:
        field = self.fields.get(key)
        return None if field is None else field.contents()

    def number(self, key: str, default: Any = None) -> Any:
        found = self.get(f"{self.architecture}.{key}")
        return default if found is None else found

    def __getitem__(self, name: str) -> Array:
        return self.tensors[f"{name}.weight"]

    def pooled(self, ids: Any) -> Array:
        """float64 [out]: the vector of an embedding model, not normalised."""
        found = {"gemma-embedding": gemma_embedding, "gemma-embedding2": gemma_embedding2}
        return found[self.architecture](self, ids)

    def logits(self, ids: Any) -> Array:
        """float64 [tokens, vocabulary]: the logits at every position."""
        return {"llama": llama, "lfm2": lfm2, "gemma3": gemma3}[self.architecture](self, ids)


def rms(x: Array, w: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rope(x: Array, base: float, interleaved: bool) -> Array:
    """x [tokens, heads, head] turned by its position."""
    n, _, head = x.shape
    angle = np.arange(n)[:, None] * base ** (-2.0 * np.arange(head // 2) / head)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = (np.s_[..., 0::2], np.s_[..., 1::2]) if interleaved else halves(head)
    out = np.empty_like(x)
    out[first] = x[first] * c - x[second] * s
    out[second] = x[first] * s + x[second] * c
    return out


def halves(head: int) -> tuple[Any, Any]:
    return np.s_[..., : head // 2], np.s_[..., head // 2 :]


def attend(
    q: Array, k: Array, v: Array, window: int = 0, causal: bool = True, scale: float | None = None
) -> Array:
    """Attention of q [tokens, heads, head], scores times ``scale`` (1 / sqrt(head)); keys further
    back than ``window`` are hidden, or further than half of it on both sides."""
    n, heads, head = q.shape
    group = heads // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * (1 / np.sqrt(head) if scale is None else scale)
    back = np.arange(n)[:, None] - np.arange(n)[None]
    if causal:
        scores[:, (back < 0) | ((back >= window) if window else False)] = -np.inf
    elif window:
        scores[:, abs(back) > window // 2] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), v).reshape(n, -1)


def product(m: Model, name: str, x: Array) -> Array:
    return x @ m[name].T + m.tensors.get(f"{name}.bias", 0.0)


def qkv(m: Model, b: str, x: Array) -> list[Array]:
    return [product(m, f"{b}attn_{name}", x).reshape(len(x), -1, m.head) for name in "qkv"]


def feed_forward(m: Model, b: str, x: Array, act: Any) -> Array:
    inner = act(product(m, f"{b}ffn_gate", x)) * product(m, f"{b}ffn_up", x)
    return product(m, f"{b}ffn_down", inner)


def head(m: Model, x: Array) -> Array:
    return x @ m["output" if "output.weight" in m.tensors else "token_embd"].T


def llama(m: Model, ids: Any) -> Array:
    h = m["token_embd"][ids]
    for i in range(m.blocks):
        b = f"blk.{i}."
        q, k, v = qkv(m, b, rms(h, m[f"{b}attn_norm"], m.eps))
        q, k = rope(q, m.base, True), rope(k, m.base, True)
        h = h + product(m, f"{b}attn_output", attend(q, k, v))
        h = h + feed_forward(m, b, rms(h, m[f"{b}ffn_norm"], m.eps), silu)
    return head(m, rms(h, m["output_norm"], m.eps))


def lfm2(m: Model, ids: Any) -> Array:
    return head(m, rms(trunk(m, ids, m.blocks), m["token_embd_norm"], m.eps))


def trunk(m: Model, ids: Any, blocks: int, causal: bool = True) -> Array:
    """The blocks of LFM2; without ``causal`` a row sees what is behind it too."""
    h = m["token_embd"][ids]
    for i in range(blocks):
        b = f"blk.{i}."
        x = rms(h, m[f"{b}attn_norm"], m.eps)
        if m.number("attention.head_count_kv")[i]:
            q, k, v = qkv(m, b, x)
            q, k = (rms(t, m[f"{b}attn_{n}_norm"], m.eps) for t, n in ((q, "q"), (k, "k")))
            x = attend(rope(q, m.base, False), rope(k, m.base, False), v, causal=causal)
            h = h + x @ m[f"{b}attn_output"].T
        else:
            gate, c, value = np.split(x @ m[f"{b}shortconv.in_proj"].T, 3, axis=-1)
            taps = m[f"{b}shortconv.conv"]
            size = taps.shape[1]
            before = size - 1 if causal else size // 2
            past = np.pad(gate * value, ((before, size - 1 - before), (0, 0)))
            conv = sum(past[t : t + len(x)] * taps[:, t] for t in range(size))
            h = h + (c * conv) @ m[f"{b}shortconv.out_proj"].T
        h = h + feed_forward(m, b, rms(h, m[f"{b}ffn_norm"], m.eps), silu)
    return h


def decision(m: Model, ids: Any) -> Array:
    """float64 [tokens, 3]: what every row scores for every type of question."""
    count = m.number("decision.block_count")
    eps = m.number("attention.layer_norm_epsilon")
    h = rms(trunk(m, ids, m.blocks - count, causal=False), m["token_embd_norm"], m.eps)
    return np.stack([scores(m, h + kind, count, eps) for kind in m["token_types"]], 1)


def scores(m: Model, x: Array, count: int, eps: float) -> Array:
    def norm(name: str, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps)
        return scaled * m[name] + m.tensors[f"{name}.bias"]

    for i in range(m.blocks - count, m.blocks):
        b = f"blk.{i}."
        made = product(m, f"{b}attn_qkv", norm(f"{b}attn_norm", x))
        q, k, v = (part.reshape(len(x), m.heads, -1) for part in np.split(made, 3, axis=-1))
        x = x + product(m, f"{b}attn_output", attend(q, k, v, causal=False))
        inner = np.maximum(product(m, f"{b}ffn_up", norm(f"{b}ffn_norm", x)), 0)
        x = x + product(m, f"{b}ffn_down", inner)
    x = product(m, "cls", norm("cls.norm", x))
    x = 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))
    return product(m, "cls.output", x)[:, 0]


def gemma_embedding2(m: Model, ids: Any) -> Array:
    """float64 [out]: the mean of all rows, not normalised."""
    width, count = m["token_embd"].shape[1], m.blocks
    h = m["token_embd"][ids] * np.sqrt(width)
    own = (h @ m["per_layer_model_proj"].T / np.sqrt(width)).reshape(len(h), count, -1)
    own = rms(own, m["per_layer_proj_norm"], m.eps)
    near = m.number("attention.sliding_window_pattern")
    for i in range(count):
        b = f"blk.{i}."
        size = m.number("attention.key_length_swa" if near[i] else "attention.key_length")
        base = m.number("rope.freq_base_swa", 10000.0) if near[i] else m.base
        x = rms(h, m[f"{b}attn_norm"], m.eps)
        q, k, v = (product(m, f"{b}attn_{name}", x).reshape(len(x), -1, size) for name in "qkv")
        q = rope(rms(q, m[f"{b}attn_q_norm"], m.eps), base, False)
        k = rope(rms(k, m[f"{b}attn_k_norm"], m.eps), base, False)
        window = m.number("attention.sliding_window") if near[i] else 0
        x = attend(q, k, rms(v, 1.0, m.eps), window, causal=False, scale=1.0)
        h = h + rms(x @ m[f"{b}attn_output"].T, m[f"{b}post_attention_norm"], m.eps)
        x = feed_forward(m, b, rms(h, m[f"{b}ffn_norm"], m.eps), gelu_tanh)
        h = h + rms(x, m[f"{b}post_ffw_norm"], m.eps)
        gate = gelu_tanh(product(m, f"{b}inp_gate", h)) * own[:, i]
        h = h + rms(product(m, f"{b}proj", gate), m[f"{b}post_norm"], m.eps)
        h = h * m[f"{b}layer_output_scale"]
    return np.mean(rms(h, m["output_norm"], m.eps) @ m["output"].T, axis=0)


def gemma3(m: Model, ids: Any) -> Array:
    return head(m, gemma_blocks(m, ids))


def gemma_embedding(m: Model, ids: Any) -> Array:
    """float64 [width]: the mean of all rows through two layers, not normalised."""
    mean = np.mean(gemma_blocks(m, ids, causal=False), axis=0)
    return mean @ m["dense_2"].T @ m["dense_3"].T if "dense_2.weight" in m.tensors else mean


def gemma_blocks(m: Model, ids: Any, causal: bool = True) -> Array:
    """All blocks of Gemma 3 and the norm behind them."""
    h = m["token_embd"][ids] * np.sqrt(m["token_embd"].shape[1])
    window, period = m.number("attention.sliding_window"), m.period
    for i in range(m.blocks):
        b, near = f"blk.{i}.", i % period < period - 1
        q, k, v = qkv(m, b, rms(h, m[f"{b}attn_norm"], m.eps))
        base = 10000.0 if near else m.base
        q = rope(rms(q, m[f"{b}attn_q_norm"], m.eps), base, False)
        k = rope(rms(k, m[f"{b}attn_k_norm"], m.eps), base, False)
        x = attend(q, k, v, window if near else 0, causal) @ m[f"{b}attn_output"].T
        h = h + rms(x, m[f"{b}post_attention_norm"], m.eps)
        x = feed_forward(m, b, rms(h, m[f"{b}ffn_norm"], m.eps), gelu_tanh)
        h = h + rms(x, m[f"{b}post_ffw_norm"], m.eps)
    return rms(h, m["output_norm"], m.eps)
