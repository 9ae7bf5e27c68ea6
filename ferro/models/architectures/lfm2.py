"""``lfm2``: LFM2 and LFM2.5, blocks of short convolutions with some of attention among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ferro.models.architectures import decision_head
from ferro.models.architectures.blocks import (
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
    from ferro.models.encoder_layers import EncoderLayers
    from ferro.models.layers import Layers
    from ferro.models.operations import Rows


def read(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "lfm2")
    head, base, factor = read.head(), read.real("rope.freq_base", 10000.0), read.rope_factor()
    rotated, window = read.rotated(head), read.integer("attention.sliding_window", 0, least=0)
    sizes = zip(read.heads, read.kv_heads(least=0), read.feed_forward, strict=True)
    made = read.made(
        Layer(heads, kv, head, ff, window, base, rotated, factor) for heads, kv, ff in sizes
    )
    made = replace(
        made,
        causal=read.flag("attention.causal", True),
        taps=read.integer("shortconv.l_cache", least=2),
    )
    return decision_head.read(read, made) if read.integer(decision_head.BLOCKS, 0, 0) else made


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    width = made.width
    # named like a norm of embeddings, it stands before the LM head
    yield from embedding(made, "token_embd_norm")
    yield output(made)
    trunk = len(made.layers) - made.head_blocks
    for i, (block, layer) in enumerate(blocks(made)):
        if i >= trunk:
            yield from decision_head.block_tensors(block, width, layer)
            continue
        yield from vectors(block, width, "attn_norm", "ffn_norm")
        if layer.attends:
            yield from attention(file, block, width, layer)
            yield from vectors(block, layer.head, "attn_q_norm", "attn_k_norm")
        else:
            yield Expected(f"{block}shortconv.in_proj.weight", (3 * width, width))
            yield Expected(f"{block}shortconv.conv.weight", (width, made.taps))
            yield Expected(f"{block}shortconv.out_proj.weight", (width, width))
        yield from gated(block, width, layer)
    if made.head_blocks:
        yield from decision_head.scorer_tensors(width)


def forward(run: Layers, made: Hyperparameters) -> Rows:
    h = run.embed()
    for i, layer in enumerate(made.layers):
        h = mixed(run, i, layer, h)
        if i == len(made.layers) - 1:
            h = run.wanted(h)
        h = fed(run, i, h)
    return run.logits(run.norm("token_embd_norm", h))


def encode(run: EncoderLayers, made: Hyperparameters) -> Rows:
    """Scores of the wanted rows of inputs that are seen whole [wanted, 1]."""
    h = run.embed()
    for i in range(len(made.layers) - made.head_blocks):
        h = fed(run, i, mixed(run, i, made.layers[i], h))
    return decision_head.scores(run, made, run.norm_rows("token_embd_norm", h, made.eps))


def mixed(run: Layers | EncoderLayers, i: int, layer: Layer, h: Rows) -> Rows:
    """The first half of a block: attention, or a short convolution."""
    b = f"blk.{i}."
    x = run.norm(f"{b}attn_norm", h)
    if layer.attends:
        x = run.attention(i, run.product(f"{b}attn_qkv", x))
        return run.product(f"{b}attn_output", x, residual=h)
    x = run.short_convolution(i, run.product(f"{b}shortconv.in_proj", x))
    return run.product(f"{b}shortconv.out_proj", x, residual=h)


def fed(run: Layers | EncoderLayers, i: int, h: Rows) -> Rows:
    """The second half of a block."""
    b = f"blk.{i}."
    x = run.norm(f"{b}ffn_norm", h)
    x = run.gated(f"{b}ffn_gate", f"{b}ffn_up", x, "silu")
    return run.product(f"{b}ffn_down", x, residual=h)
