"""``gemma3``: Gemma 3, where most blocks see a window of keys only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ferro.models.architectures.blocks import Expected, blocks, embedding, gemma_block, output
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Layer, Reader

if TYPE_CHECKING:
    from ferro.models.encoder_layers import EncoderLayers
    from ferro.models.layers import Layers
    from ferro.models.operations import Rows

BLOCKS_OF_27B = 62  # the one size whose scores are not scaled by the size of a head


def read(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "gemma3")
    if read.metadata.real(read.key("final_logit_softcapping"), 0.0):
        raise read.wrong("final_logit_softcapping", "a cap of logits is not supported")
    made = read_blocks(read)
    if read.count == BLOCKS_OF_27B:
        return replace(made, score_scale=1 / math.sqrt(read.width / read.heads[0]))
    return made


def read_blocks(read: Reader) -> Hyperparameters:
    """What the architectures of these blocks share. Raises MissingKey, WrongValue."""
    head, window = read.head(), read.integer("attention.sliding_window", 0, least=0)
    rotated = read.rotated(head)
    base, factor = read.real("rope.freq_base", 10000.0), read.rope_factor()
    full = Layer(0, 0, head, 0, 0, base, rotated, factor)
    # positions are scaled where all keys are seen only
    near = Layer(0, 0, head, 0, window, read.real("rope.freq_base_swa", 10000.0), rotated)
    slides = read.sliding() if window else (False,) * read.count
    sizes = zip(slides, read.heads, read.kv_heads(), read.feed_forward, strict=True)
    return read.made(
        replace(near if s else full, heads=heads, kv_heads=kv, feed_forward=ff)
        for s, heads, kv, ff in sizes
    )


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    yield from embedding(made, "output_norm")
    yield output(made)
    for block, layer in blocks(made):
        yield from gemma_block(file, block, made.width, layer)


def forward(run: Layers, made: Hyperparameters) -> Rows:
    h = run.embed(scale=math.sqrt(made.width))
    for i in range(len(made.layers)):
        h = attended(run, i, h)
        if i == len(made.layers) - 1:
            h = run.wanted(h)
        h = fed(run, i, h)
    return run.logits(run.norm("output_norm", h))


def attended(run: Layers | EncoderLayers, i: int, h: Rows, **how: Any) -> Rows:
    """The first half of a block; ``how`` is for its attention."""
    b = f"blk.{i}."
    x = run.norm(f"{b}attn_norm", h)
    x = run.attention(i, run.product(f"{b}attn_qkv", x), **how)
    return run.add_norm(f"{b}post_attention_norm", run.product(f"{b}attn_output", x), h)


def fed(run: Layers | EncoderLayers, i: int, h: Rows) -> Rows:
    """The second half of a block."""
    b = f"blk.{i}."
    x = run.norm(f"{b}ffn_norm", h)
    x = run.gated(f"{b}ffn_gate", f"{b}ffn_up", x, "gelu_tanh")
    return run.add_norm(f"{b}post_ffw_norm", run.product(f"{b}ffn_down", x), h)
