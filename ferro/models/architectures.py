"""The architectures that Ferro runs: their hyperparameters and the tensors that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ferro.models.errors import MissingTensor, SplitFile, UnsupportedArchitecture, WrongShape
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import EMBEDDING, Hyperparameters, Layer, Reader
from ferro.models.weights import check_type

ARCHITECTURE = "general.architecture"


@dataclass(frozen=True)
class Expected:
    """A tensor of an architecture; one that is not ``needed`` may be left out."""

    name: str
    shape: tuple[int, ...]
    needed: bool = True


@dataclass(frozen=True)
class Architecture:
    """``read`` gives the hyperparameters of a file, ``tensors`` what it must then hold."""

    read: Callable[[GgufFile], Hyperparameters]
    tensors: Callable[[Hyperparameters, GgufFile], Iterator[Expected]]


def recognise(file: GgufFile) -> Hyperparameters:
    """The hyperparameters of a file that Ferro can run, every needed tensor being there.

    Raises UnsupportedArchitecture, SplitFile, MissingKey, WrongValue, MissingTensor, WrongShape,
    UnsupportedType.
    """
    name = file.metadata.text(ARCHITECTURE)
    if name not in ARCHITECTURES:
        raise UnsupportedArchitecture.named(str(file.path), name, ARCHITECTURES)
    pieces = file.metadata.integer("split.count", 1)
    if pieces > 1:
        raise SplitFile(str(file.path), f"one of {pieces} pieces of a model, which must be joined")
    architecture = ARCHITECTURES[name]
    found = architecture.read(file)
    _check(file, architecture.tensors(found, file))
    return found


def _check(file: GgufFile, expected: Iterator[Expected]) -> None:
    missing: list[str] = []
    for each in expected:
        info = file.tensors.get(each.name)
        if info is None:
            missing += [each.name] if each.needed else []
            continue
        if _plain(info.shape) != _plain(each.shape):
            raise WrongShape(
                str(file.path),
                f"tensor `{each.name}` has shape {list(info.shape)} instead of {list(each.shape)}",
            )
        check_type(file, info)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise MissingTensor(str(file.path), f"the tensor `{missing[0]}` is missing{more}")


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without ones in front: a matrix of one row is written as a vector at times."""
    return _plain(shape[1:]) if len(shape) > 1 and shape[0] == 1 else shape


# --- what blocks are made of ---------------------------------------------------------------------


def embedding(made: Hyperparameters, norm: str) -> Iterator[Expected]:
    yield Expected(EMBEDDING, (made.vocabulary, made.width))
    yield Expected(f"{norm}.weight", (made.width,))


def vectors(block: str, size: int, *names: str) -> Iterator[Expected]:
    return (Expected(f"{block}{name}.weight", (size,)) for name in names)


def attention(file: GgufFile, block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """Products of an attention block; those of queries, keys and values may be one."""
    q, kv = layer.q_width, layer.kv_width
    parts = {"attn_q": q, "attn_k": kv, "attn_v": kv}
    if f"{block}attn_qkv.weight" in file.tensors:
        parts = {"attn_qkv": q + 2 * kv}
    for name, rows in parts.items():
        yield Expected(f"{block}{name}.weight", (rows, width))
        yield Expected(f"{block}{name}.bias", (rows,), needed=False)
    yield Expected(f"{block}attn_output.weight", (width, q))
    yield Expected(f"{block}attn_output.bias", (width,), needed=False)


def gated(block: str, width: int, layer: Layer) -> Iterator[Expected]:
    """The products of a gated feed-forward block."""
    inner = layer.feed_forward
    for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
        yield Expected(f"{block}ffn_{name}.weight", (rows, cols))
        yield Expected(f"{block}ffn_{name}.bias", (rows,), needed=False)


def blocks(made: Hyperparameters) -> Iterator[tuple[str, Layer]]:
    return ((f"blk.{i}.", layer) for i, layer in enumerate(made.layers))


# --- llama ---------------------------------------------------------------------------------------


def read_llama(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "llama")
    head, base = read.head(), read.real("rope.freq_base", 10000.0)
    rotated = read.rotated(head)
    sizes = zip(read.heads, read.kv_heads(read.heads[0]), read.feed_forward, strict=True)
    return read.made(Layer(heads, kv, head, ff, 0, base, rotated) for heads, kv, ff in sizes)


def llama_tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    yield from embedding(made, "output_norm")
    yield Expected("output.weight", (made.vocabulary, made.width), needed=False)
    yield Expected("rope_freqs.weight", (made.layers[0].rotated // 2,), needed=False)
    for block, layer in blocks(made):
        yield from vectors(block, made.width, "attn_norm", "ffn_norm")
        yield from attention(file, block, made.width, layer)
        yield from gated(block, made.width, layer)


# --- lfm2 ----------------------------------------------------------------------------------------


def read_lfm2(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "lfm2")
    head, base = read.head(), read.real("rope.freq_base", 10000.0)
    rotated, window = read.rotated(head), read.integer("attention.sliding_window", 0, least=0)
    sizes = zip(read.heads, read.kv_heads(least=0), read.feed_forward, strict=True)
    made = read.made(Layer(heads, kv, head, ff, window, base, rotated) for heads, kv, ff in sizes)
    head_blocks = read.integer("decision.block_count", 0, least=0)
    if head_blocks >= len(made.layers):
        raise read.wrong("decision.block_count", f"{head_blocks} of {len(made.layers)} blocks")
    return replace(
        made,
        causal=read.flag("attention.causal", True),
        taps=read.integer("shortconv.l_cache", least=2),
        head_blocks=head_blocks,
    )


def lfm2_tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    width = made.width
    yield from embedding(made, "token_embd_norm")
    yield Expected("output.weight", (made.vocabulary, width), needed=False)
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


# --- gemma3 --------------------------------------------------------------------------------------


def read_gemma3(file: GgufFile) -> Hyperparameters:
    read = Reader(file, "gemma3")
    head, window = read.head(), read.integer("attention.sliding_window", 0, least=0)
    rotated = read.rotated(head)
    base = read.real("rope.freq_base", 10000.0)
    local_base = read.real("rope.freq_base_swa", 10000.0)
    slides = read.sliding() if window else (False,) * read.count
    sizes = zip(slides, read.heads, read.kv_heads(), read.feed_forward, strict=True)
    return read.made(
        Layer(heads, kv, head, ff, window if s else 0, local_base if s else base, rotated)
        for s, heads, kv, ff in sizes
    )


def gemma3_tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
    yield from embedding(made, "output_norm")
    yield Expected("output.weight", (made.vocabulary, made.width), needed=False)
    for block, layer in blocks(made):
        yield from gemma_block(file, block, made.width, layer)


def gemma_block(file: GgufFile, block: str, width: int, layer: Layer) -> Iterator[Expected]:
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    yield from vectors(block, width, *norms)
    yield from vectors(block, layer.head, "attn_q_norm", "attn_k_norm")
    yield from attention(file, block, width, layer)
    yield from gated(block, width, layer)


# --- gemma-embedding2 ----------------------------------------------------------------------------


def read_gemma_embedding2(file: GgufFile) -> Hyperparameters:
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


def gemma_embedding2_tensors(made: Hyperparameters, file: GgufFile) -> Iterator[Expected]:
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


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(read_llama, llama_tensors),
    "lfm2": Architecture(read_lfm2, lfm2_tensors),
    "gemma3": Architecture(read_gemma3, gemma3_tensors),
    "gemma-embedding2": Architecture(read_gemma_embedding2, gemma_embedding2_tensors),
}
