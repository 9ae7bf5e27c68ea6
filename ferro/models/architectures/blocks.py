"""What the blocks of architectures are made of: their tensors, and how a device keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import EMBEDDING, Hyperparameters, Layer
from ferro.models.loading import Part, part

OUTPUT = "output.weight"
ROPE_DIVISORS = "rope_freqs.weight"


@dataclass(frozen=True)
class Expected:
    """A tensor of an architecture; one that is not ``needed`` may be left out. Tensors of one
    ``group`` are kept as one, their rows one after the other; one whose rows are ``split`` in
    blocks is kept as so many, named ``blk.0.`` and so on in front; one that is ``plain`` stays in
    float32, its rows as in the file."""

    name: str
    shape: tuple[int, ...]
    needed: bool = True
    group: str = ""
    split: int = 1
    plain: bool = False


def parts(expected: Iterable[Expected], file: GgufFile, form: str) -> list[Part]:
    """What a device keeps of a model: matrices in ``form`` ("q4": 4 bits where the file has 4, else
    8; "q8" or "f32"), the rest in float32. What tables of angles are made from stays on the host.
    """
    groups: dict[str, list[str]] = {}
    apart: list[Part] = []
    form = "turned" if form == "f32" else form
    for each in expected:
        if each.split > 1:
            whole, rows = part(file, each.name, (each.name,), form), each.shape[0] // each.split
            apart += [
                replace(whole, name=f"blk.{i}.{each.name}", rows=(i * rows, (i + 1) * rows))
                for i in range(each.split)
            ]
        elif each.plain:
            apart.append(Part(each.name, (each.name,), "f32"))
        elif each.name in file.tensors and each.name != ROPE_DIVISORS:
            groups.setdefault(each.group or each.name, []).append(each.name)
    return apart + [part(file, name, tuple(names), form) for name, names in groups.items()]


def blocks(made: Hyperparameters) -> Iterator[tuple[str, Layer]]:
    return ((f"blk.{i}.", layer) for i, layer in enumerate(made.layers))


def embedding(made: Hyperparameters, norm: str) -> Iterator[Expected]:
    yield Expected(EMBEDDING, (made.vocabulary, made.width))
    yield Expected(f"{norm}.weight", (made.width,))


def output(made: Hyperparameters) -> Expected:
    """The LM head, which the embedding may be as well."""
    return Expected(OUTPUT, (made.vocabulary, made.width), needed=False)


def vectors(block: str, size: int, *names: str) -> Iterator[Expected]:
    return (Expected(f"{block}{name}.weight", (size,)) for name in names)


def attention(file: GgufFile, block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """Products of an attention block; those of queries, keys and values may be one in the file and
    are one on the device."""
    q, kv = layer.q_width, layer.kv_width
    rows = {"attn_q": q, "attn_k": kv, "attn_v": kv}
    if f"{block}attn_qkv.weight" in file.tensors:
        rows = {"attn_qkv": q + 2 * kv}
    biased = any(f"{block}{name}.bias" in file.tensors for name in rows)
    for name, size in rows.items():
        yield Expected(f"{block}{name}.weight", (size, width), group=f"{block}attn_qkv.weight")
        yield Expected(f"{block}{name}.bias", (size,), biased, group=f"{block}attn_qkv.bias")
    yield Expected(f"{block}attn_output.weight", (width, q))
    yield Expected(f"{block}attn_output.bias", (width,), needed=False)


def gated(block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """The products of a gated feed-forward block."""
    inner = layer.feed_forward
    for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
        yield Expected(f"{block}ffn_{name}.weight", (rows, cols))
        yield Expected(f"{block}ffn_{name}.bias", (rows,), needed=False)


def gemma_block(file: GgufFile, block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """A block of the Gemma 3 family: norms before and after both halves, norms of heads."""
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    yield from vectors(block, width, *norms)
    yield from vectors(block, layer.head, "attn_q_norm", "attn_k_norm")
    yield from attention(file, block, width, layer)
    yield from gated(block, width, layer)
