"""``gemma-embedding``: EmbeddingGemma (300M), the blocks of Gemma 3 in both directions.

Source: spec of the small models, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ferro.models.architectures import gemma3
from ferro.models.architectures.blocks import Expected, blocks, embedding, gemma_block
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Reader

if TYPE_CHECKING:
    from ferro.models.encoder_layers import EncoderLayers
    from ferro.models.operations import Rows

NAME = "gemma-embedding"
DENSE = ("dense_2", "dense_3")  # layers behind pooling, which files may leave out


def read(file: GgufFile) -> Hyperparameters:
    read = Reader(file, NAME)
    read.mean_pooling()
    made = gemma3.read_blocks(read)
    out = read.integer("dense_3_feat_out", made.width) if has_dense(file) else made.width
    return replace(made, causal=False, out=out)


def tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    yield from embedding(made, "output_norm")
    for block, layer in blocks(made):
        yield from gemma_block(file, block, made.width, layer)
    if has_dense(file):
        inner = Reader(file, NAME).integer("dense_2_feat_out")
        yield Expected("dense_2.weight", (inner, made.width))
        yield Expected("dense_3.weight", (made.out, inner))


def has_dense(file: GgufFile) -> bool:
    return any(f"{name}.weight" in file.tensors for name in DENSE)


def encode(run: EncoderLayers, made: Hyperparameters) -> Rows:
    h = run.embed(scale=math.sqrt(made.width))
    for i in range(len(made.layers)):
        h = gemma3.fed(run, i, gemma3.attended(run, i, h))
    pooled = run.pooled(run.norm_rows("output_norm", h, made.eps))
    if not run.has(DENSE[0]):
        return pooled
    for name in DENSE:
        pooled = run.product(name, run.activated(name, pooled))
    return pooled
