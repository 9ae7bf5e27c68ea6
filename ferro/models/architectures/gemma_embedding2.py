"""``gemma-embedding2``: EmbeddingGemma 2, an encoder with inputs for each block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from ferro.models.architectures import gemma3
from ferro.models.architectures.blocks import Expected, blocks, embedding, gemma_block, vectors
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Layer, Reader

if TYPE_CHECKING:
    from ferro.models.encoder_layers import EncoderLayers
    from ferro.models.operations import Rows


def read(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "gemma-embedding2")
    read.mean_pooling()
    head = read.head()
    local = read.head("_swa", head)
    window = read.integer("attention.sliding_window")
    full = Layer(0, 0, head, 0, 0, read.real("rope.freq_base", 10000.0), read.rotated(head))
    base, rotated = read.real("rope.freq_base_swa", 10000.0), read.rotated(local, "_swa")
    sliding = Layer(0, 0, local, 0, window, base, rotated)
    sizes = zip(read.sliding(), read.heads, read.kv_heads(), read.feed_forward, strict=True)
    made = read.made(
        replace(sliding if s else full, heads=heads, kv_heads=kv, feed_forward=ff)
        for s, heads, kv, ff in sizes
    )
    return replace(
        made,
        causal=False,
        score_scale=1.0,
        per_layer=read.integer("embedding_length_per_layer_input"),
        out=read.integer("embedding_length_out", made.width),
    )


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    width, inner = made.width, made.per_layer
    yield from embedding(made, "output_norm")
    yield Expected("output.weight", (made.out, width))
    count = len(made.layers)
    # one product for all blocks would take 0.4 GB for a text of 8192 tokens
    yield Expected("per_layer_model_proj.weight", (inner * count, width), split=count)
    yield Expected("per_layer_proj_norm.weight", (inner,))
    for block, layer in blocks(made):
        yield from gemma_block(file, block, width, layer)
        yield from vectors(block, width, "post_norm")
        yield Expected(f"{block}inp_gate.weight", (inner, width))
        yield Expected(f"{block}proj.weight", (width, inner))
        yield Expected(f"{block}layer_output_scale.weight", (1,))


def encode(run: EncoderLayers, made: Hyperparameters) -> Rows:
    h = run.embed(scale=sqrt(made.width), role="inputs")
    inputs = run.activated("inputs", h)
    for i in range(len(made.layers)):
        b = f"blk.{i}."
        h = gemma3.fed(run, i, gemma3.attended(run, i, h, norm_values=True))
        own = run.product(f"{b}per_layer_model_proj", inputs)
        # the product is to be divided by sqrt(width), which only eps can tell
        own = run.norm_rows("per_layer_proj_norm", own, made.eps * made.width)
        x = run.product(f"{b}inp_gate", run.activated("gate", h))
        x = run.product(f"{b}proj", run.multiplied(x, own, "gelu_tanh"))
        h = run.add_norm(f"{b}post_norm", x, h, scale=f"{b}layer_output_scale")
    return run.pooled(run.product("output", run.norm("output_norm", h)))
