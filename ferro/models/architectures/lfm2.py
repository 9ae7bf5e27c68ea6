"""``lfm2``: LFM2 and LFM2.5, blocks of short convolutions with some of attention among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

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
    head_blocks = read.integer("decision.block_count", 0, least=0)
    if head_blocks >= len(made.layers):
        raise read.wrong("decision.block_count", f"{head_blocks} of {len(made.layers)} blocks")
    return replace(
        made,
        causal=read.flag("attention.causal", True),
        taps=read.integer("shortconv.l_cache", least=2),
        head_blocks=head_blocks,
    )


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    width = made.width
    # named like a norm of embeddings, it stands before the LM head
    yield from embedding(made, "token_embd_norm")
    yield output(made)
    trunk = len(made.layers) - made.head_blocks
    for i, (block, layer) in enumerate(blocks(made)):
        if i >= trunk:
            yield from decision_block(block, width, layer)
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
        yield from decision_scorer(width)


def forward(run: Layers, made: Hyperparameters) -> Rows:
    h = run.embed()
    for i, layer in enumerate(made.layers):
        b = f"blk.{i}."
        x = run.norm(f"{b}attn_norm", h)
        if layer.attends:
            x = run.attention(i, run.product(f"{b}attn_qkv", x))
            h = run.product(f"{b}attn_output", x, residual=h)
        else:
            x = run.short_convolution(i, run.product(f"{b}shortconv.in_proj", x))
            h = run.product(f"{b}shortconv.out_proj", x, residual=h)
        if i == len(made.layers) - 1:
            h = run.wanted(h)
        x = run.norm(f"{b}ffn_norm", h)
        x = run.gated(f"{b}ffn_gate", f"{b}ffn_up", x, "silu")
        h = run.product(f"{b}ffn_down", x, residual=h)
    return run.logits(run.norm("token_embd_norm", h))


def decision_block(block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """A block of a decision head: layer norms and biases, no gate."""
    for name in ("attn_norm", "ffn_norm"):
        yield Expected(f"{block}{name}.weight", (width,))
        yield Expected(f"{block}{name}.bias", (width,))
    q, kv, inner = layer.q_width, layer.kv_width, layer.feed_forward
    products = {"attn_qkv": (q + 2 * kv, width), "attn_output": (width, q)}
    products |= {"ffn_up": (inner, width), "ffn_down": (width, inner)}
    for name, shape in products.items():
        yield Expected(f"{block}{name}.weight", shape)
        yield Expected(f"{block}{name}.bias", shape[:1])


def decision_scorer(width: int) -> Iterator[Expected]:
    yield Expected("token_types.weight", (3, width))
    for name, shape in (
        ("cls.norm", (width,)),
        ("cls", (width, width)),
        ("cls.output", (1, width)),
    ):
        yield Expected(f"{name}.weight", shape)
        yield Expected(f"{name}.bias", shape[:1])
