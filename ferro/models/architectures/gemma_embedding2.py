"""``gemma-embedding2``: EmbeddingGemma 2, an encoder with inputs for each block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ferro.models.architectures.blocks import Expected, blocks, embedding, gemma_block, vectors
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Layer, Reader


def read(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "gemma-embedding2")
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
        per_layer=read.integer("embedding_length_per_layer_input"),
        out=read.integer("embedding_length_out", made.width),
    )


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    width, inner = made.width, made.per_layer
    yield from embedding(made, "output_norm")
    yield Expected("output.weight", (made.out, width))
    yield Expected("per_layer_model_proj.weight", (inner * len(made.layers), width))
    yield Expected("per_layer_proj_norm.weight", (inner,))
    for block, layer in blocks(made):
        yield from gemma_block(file, block, width, layer)
        yield from vectors(block, width, "post_norm")
        yield Expected(f"{block}inp_gate.weight", (inner, width))
        yield Expected(f"{block}proj.weight", (width, inner))
        yield Expected(f"{block}layer_output_scale.weight", (1,))
