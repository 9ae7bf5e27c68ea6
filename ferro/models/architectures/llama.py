"""``llama``: Llama, SmolLM, Mistral and their like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ferro.models.architectures.blocks import (
    ROPE_DIVISORS,
    Expected,
    attention,
    blocks,
    embedding,
    gated,
    output,
    vectors,
)
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Layer, Reader

if TYPE_CHECKING:
    from ferro.models.layers import Layers
    from ferro.models.operations import Rows


def read(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "llama")
    head, base, factor = read.head(), read.real("rope.freq_base", 10000.0), read.rope_factor()
    rotated = read.rotated(head)
    sizes = zip(read.heads, read.kv_heads(read.heads[0]), read.feed_forward, strict=True)
    return read.made(
        Layer(heads, kv, head, ff, 0, base, rotated, factor) for heads, kv, ff in sizes
    )


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    yield from embedding(made, "output_norm")
    yield output(made)
    yield Expected(ROPE_DIVISORS, (made.layers[0].rotated // 2,), needed=False)
    for block, layer in blocks(made):
        yield from vectors(block, made.width, "attn_norm", "ffn_norm")
        yield from attention(file, block, made.width, layer)
        yield from gated(block, made.width, layer)


def forward(run: Layers, made: Hyperparameters) -> Rows:
    h = run.embed()
    for i in range(len(made.layers)):
        b = f"blk.{i}."
        x = run.norm(f"{b}attn_norm", h)
        x = run.attention(i, run.product(f"{b}attn_qkv", x), pairs="interleaved")
        h = run.product(f"{b}attn_output", x, residual=h)
        if i == len(made.layers) - 1:
            h = run.wanted(h)
        x = run.norm(f"{b}ffn_norm", h)
        x = run.gated(f"{b}ffn_gate", f"{b}ffn_up", x, "silu")
        h = run.product(f"{b}ffn_down", x, residual=h)
    return run.logits(run.norm("output_norm", h))
