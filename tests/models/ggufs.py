"""Small model files for tests: valid ones of every architecture, and headers byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH, FF, HEADS, KV_HEADS, HEAD, TOKENS, LAYERS = 64, 96, 4, 2, 16, 40, 3
TYPE = gguf.GGMLQuantizationType

Shapes = dict[str, tuple[int, ...]]


# --- headers byte by byte ------------------------------------------------------------------------


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + payload


def entry(name: str | bytes, dims: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    """One line of the list of tensors; ``dims`` in the order of the file, rows last."""
    axes = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + axes + struct.pack("<IQ", kind, offset)


def header(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    tensor_count, key_count = counts or (len(tensors), len(keys))
    start = b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count)
    return start + b"".join([*keys, *tensors])


def whole(keys: Sequence[bytes] = (), tensors: Sequence[bytes] = (), data: int = 0) -> bytes:
    """A header, its padding, and ``data`` bytes for tensors."""
    made = header(keys, tensors)
    return made + bytes(-len(made) % 32 + data)


# --- whole models --------------------------------------------------------------------------------


def attention(block: str, kv_heads: int = KV_HEADS, head: int = 0) -> Shapes:
    head = head or HEAD  # which tests change
    return {
        f"{block}attn_norm.weight": (WIDTH,),
        f"{block}attn_q.weight": (HEADS * head, WIDTH),
        f"{block}attn_k.weight": (kv_heads * head, WIDTH),
        f"{block}attn_v.weight": (kv_heads * head, WIDTH),
        f"{block}attn_output.weight": (WIDTH, HEADS * head),
    }


def feed_forward(block: str) -> Shapes:
    return {
        f"{block}ffn_norm.weight": (WIDTH,),
        f"{block}ffn_gate.weight": (FF, WIDTH),
        f"{block}ffn_up.weight": (FF, WIDTH),
        f"{block}ffn_down.weight": (WIDTH, FF),
    }


def norms(block: str, size: int, *names: str) -> Shapes:
    return {f"{block}{name}.weight": (size,) for name in names}


def llama() -> tuple[dict[str, Any], Shapes]:
    shapes: Shapes = {"token_embd.weight": (TOKENS, WIDTH), "output_norm.weight": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= attention(f"blk.{i}.") | feed_forward(f"blk.{i}.")
    return {}, shapes


def lfm2() -> tuple[dict[str, Any], Shapes]:
    keys = {"attention.head_count_kv": [0, KV_HEADS, 0], "shortconv.l_cache": 3}
    shapes: Shapes = {"token_embd.weight": (TOKENS, WIDTH), "token_embd_norm.weight": (WIDTH,)}
    for i in range(LAYERS):
        block = f"blk.{i}."
        if keys["attention.head_count_kv"][i]:
            shapes |= attention(block) | norms(block, HEAD, "attn_q_norm", "attn_k_norm")
        else:
            shapes |= norms(block, WIDTH, "attn_norm") | {
                f"{block}shortconv.in_proj.weight": (3 * WIDTH, WIDTH),
                f"{block}shortconv.conv.weight": (WIDTH, 3),
                f"{block}shortconv.out_proj.weight": (WIDTH, WIDTH),
            }
        shapes |= feed_forward(block)
    return keys, shapes


def decision() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = lfm2()
    keys |= {
        "block_count": LAYERS + 1,
        "attention.head_count_kv": [0, KV_HEADS, 0, HEADS],
        "feed_forward_length": [FF, FF, FF, 4 * WIDTH],
        "attention.causal": False,
        "attention.layer_norm_epsilon": 1e-5,
        "decision.block_count": 1,
        "tokenizer.ggml.token_type_count": 3,
    }
    block = f"blk.{LAYERS}."
    sizes = {"attn_qkv": (3 * WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH)}
    sizes |= {"ffn_up": (4 * WIDTH, WIDTH), "ffn_down": (WIDTH, 4 * WIDTH)}
    sizes |= {"attn_norm": (WIDTH,), "ffn_norm": (WIDTH,)}
    for name, shape in sizes.items():
        shapes |= {f"{block}{name}.weight": shape, f"{block}{name}.bias": shape[:1]}
    shapes["token_types.weight"] = (3, WIDTH)
    scorer = {"cls.norm": (WIDTH,), "cls": (WIDTH, WIDTH), "cls.output": (WIDTH,)}
    for name, shape in scorer.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": (1,) if "out" in name else (WIDTH,)}
    return keys, shapes


def gemma_block(block: str, kv_heads: int = KV_HEADS, head: int = 0) -> Shapes:
    head = head or HEAD
    return {
        **attention(block, kv_heads, head),
        **feed_forward(block),
        **norms(block, WIDTH, "post_attention_norm", "post_ffw_norm"),
        **norms(block, head, "attn_q_norm", "attn_k_norm"),
    }


def gemma3() -> tuple[dict[str, Any], Shapes]:
    shapes: Shapes = {"token_embd.weight": (TOKENS, WIDTH), "output_norm.weight": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= gemma_block(f"blk.{i}.")
    keys = {"attention.sliding_window": 8, "attention.sliding_window_pattern": 3}
    return keys | {"rope.freq_base": 1e6}, shapes


def gemma_embedding2() -> tuple[dict[str, Any], Shapes]:
    local, inner = [True, True, False], 32
    keys = {
        "attention.key_length": 2 * HEAD,
        "attention.value_length": 2 * HEAD,
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "attention.head_count_kv": [KV_HEADS, KV_HEADS, 1],
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": local,
        "embedding_length_per_layer_input": inner,
        "embedding_length_out": 48,
    }
    shapes: Shapes = {"token_embd.weight": (TOKENS, WIDTH), "output_norm.weight": (WIDTH,)}
    shapes |= {
        "output.weight": (48, WIDTH),
        "per_layer_model_proj.weight": (LAYERS * inner, WIDTH),
        "per_layer_proj_norm.weight": (inner,),
    }
    for i, near in enumerate(local):
        block = f"blk.{i}."
        shapes |= gemma_block(block, KV_HEADS if near else 1, HEAD if near else 2 * HEAD)
        shapes |= norms(block, WIDTH, "post_norm") | {
            f"{block}inp_gate.weight": (inner, WIDTH),
            f"{block}proj.weight": (WIDTH, inner),
            f"{block}layer_output_scale.weight": (1,),
        }
    return keys, shapes


def gemma_embedding() -> tuple[dict[str, Any], Shapes]:
    keys, shapes = gemma3()
    dense: Shapes = {"dense_2.weight": (3 * WIDTH, WIDTH), "dense_3.weight": (WIDTH, 3 * WIDTH)}
    sizes = {"dense_2_feat_out": 3 * WIDTH, "dense_3_feat_out": WIDTH, "pooling_type": 1}
    return keys | sizes, shapes | dense


MODELS = {
    "llama": llama,
    "lfm2": lfm2,
    "lfm2 with a decision head": decision,
    "gemma3": gemma3,
    "gemma-embedding": gemma_embedding,
    "gemma-embedding2": gemma_embedding2,
}


def model(
    path: Path,
    name: str = "llama",
    kind: str = "Q8_0",
    without: Iterable[str] = (),
    keys: dict[str, Any] | None = None,
    shapes: Shapes | None = None,
) -> Path:
    """Writes a model of ``MODELS``: matrices of type ``kind``, the rest in F32. ``without`` leaves
    out keys (given without the architecture) and tensors; ``keys`` and ``shapes`` replace some."""
    architecture = name.split()[0]
    own_keys, own_shapes = MODELS[name]()
    all_keys = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": WIDTH,
        "feed_forward_length": FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **own_keys,
        **(keys or {}),
    }
    writer = gguf.GGUFWriter(path, architecture)
    for key_name, value in all_keys.items():
        if key_name not in without:
            whole = key_name.startswith("tokenizer.")
            add(writer, key_name if whole else f"{architecture}.{key_name}", value)
    tokens(writer)
    random = np.random.default_rng(0)
    for tensor, shape in {**own_shapes, **(shapes or {})}.items():
        if tensor not in without:
            add_tensor(writer, tensor, random.standard_normal(shape, dtype=np.float32), kind)
    finish(writer)
    return path


def tokens(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{i}>" for i in range(TOKENS)])
    writer.add_token_merges(["< 1"])


def add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def add_tensor(writer: gguf.GGUFWriter, name: str, data: Any, kind: str) -> None:
    plain = data.ndim == 1 or data.shape[-1] % 32 or name.endswith("conv.weight")
    used = TYPE.F32 if plain else TYPE[kind]
    writer.add_tensor(name, gguf.quants.quantize(data, used), raw_dtype=used)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
