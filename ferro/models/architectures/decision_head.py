"""The head of ``lfm2-d1-omni``: blocks of an encoder behind the trunk, and a scorer.

A question's type is added to every row of its input; a score is that of one row for that type.
Source: spec of the decision model, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ferro.models.architectures.blocks import Expected
from ferro.models.hyperparameters import Hyperparameters, Layer, Reader

if TYPE_CHECKING:
    from ferro.models.encoder_layers import EncoderLayers
    from ferro.models.operations import Rows

TYPES = 3  # of questions: choice, score, noul
BLOCKS = "decision.block_count"
KINDS = "tokenizer.ggml.token_type_count"
TAPS = 3  # of convolutions in both directions: what more would mean is not known


def read(read: Reader, trunk: Hyperparameters) -> Hyperparameters:
    """The hyperparameters of a file whose last blocks are those of a head. Raises MissingKey and
    WrongValue."""
    count = read.integer(BLOCKS)
    if count >= len(trunk.layers):
        raise read.wrong(BLOCKS, f"{count} of {len(trunk.layers)} blocks")
    if trunk.causal:
        raise read.wrong("attention.causal", "a model with a decision head sees whole inputs")
    kinds = read.metadata.integer(KINDS)
    if kinds != TYPES:
        raise read.wrong_key(KINDS, f"{kinds} types of questions; there are {TYPES}")
    if trunk.taps != TAPS:
        raise read.wrong("shortconv.l_cache", f"{trunk.taps} taps; in both directions it is {TAPS}")
    head = trunk.layers[-count:]
    if not all(layer.attends for layer in head):
        raise read.wrong("attention.head_count_kv", f"0 in the last {count} blocks, the head")
    return replace(
        trunk,
        # its queries and keys do not turn
        layers=(*trunk.layers[:-count], *(replace(layer, rotated=0) for layer in head)),
        head_blocks=count,
        head_eps=read.real("attention.layer_norm_epsilon"),
    )


def block_tensors(block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """Those of a block: layer norms and biases, no gate."""
    for name in ("attn_norm", "ffn_norm"):
        yield Expected(f"{block}{name}.weight", (width,))
        yield Expected(f"{block}{name}.bias", (width,))
    q, kv, inner = layer.q_width, layer.kv_width, layer.feed_forward
    products = {"attn_qkv": (q + 2 * kv, width), "attn_output": (width, q)}
    products |= {"ffn_up": (inner, width), "ffn_down": (width, inner)}
    for name, shape in products.items():
        yield Expected(f"{block}{name}.weight", shape)
        yield Expected(f"{block}{name}.bias", shape[:1])


def scorer_tensors(width: int) -> Iterator[Expected]:
    """Those of the types of questions and of the scorer."""
    yield Expected("token_types.weight", (TYPES, width), plain=True)
    yield Expected("cls.norm.weight", (width,))
    yield Expected("cls.norm.bias", (width,))
    yield Expected("cls.weight", (width, width))
    yield Expected("cls.bias", (width,))
    yield Expected("cls.output.weight", (1, width), plain=True)
    yield Expected("cls.output.bias", (1,))


def scores(run: EncoderLayers, made: Hyperparameters, h: Rows) -> Rows:
    """float32 [wanted, 1] from the rows that the trunk gives."""
    x = run.add_kinds("token_types", h)
    for i in range(len(made.layers) - made.head_blocks, len(made.layers)):
        b = f"blk.{i}."
        a = run.layer_norm(f"{b}attn_norm", x, made.head_eps)
        a = run.attention(i, run.product(f"{b}attn_qkv", a))
        x = run.product(f"{b}attn_output", a, residual=x)
        if i == len(made.layers) - 1:
            x = run.wanted(x)
        f = run.layer_norm(f"{b}ffn_norm", x, made.head_eps)
        f = run.activated("inner", run.product(f"{b}ffn_up", f, act="relu"))
        x = run.product(f"{b}ffn_down", f, residual=x)
    x = run.layer_norm("cls.norm", x, made.head_eps)
    return run.score("cls.output", run.product("cls", x, act="gelu"))
