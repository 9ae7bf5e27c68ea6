"""A file with the shape of EmbeddingGemma 2's text model, and weights that mean nothing.

    python -m benchmarks.embedding_file eg2.gguf

24 layers of width 512, every sixth one with heads of 512 instead of 256, products in Q8_0 and the
projection of per-layer inputs in BF16, as in the released file. The vocabulary is cut to 16384
tokens (``--vocabulary 262144``: the real one): a token's row is gathered, so its size costs memory
and no time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

NAME = "gemma-embedding2"
WIDTH, LAYERS, HEADS, INNER, OUT = 512, 24, 4, 2048, 768
NEAR, FAR = (256, 2), (512, 1)  # size of heads, heads of keys
HEAD_NORMS = {"q": 1.0234, "k": 0.1221}  # as in the released file's first block
AFTER = 0.1  # what a part of a block adds: random ones would amplify the noise of int8 without end
PERIOD = 6  # of which the last layer sees all keys
Q8, BF16 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.BF16
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


class Writer(gguf.GGUFWriter):
    """Draws tensors and writes them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, NAME)
        self._draw = np.random.default_rng(0)

    def matrix(
        self, name: str, inputs: int, outputs: int, kind: gguf.GGMLQuantizationType = Q8
    ) -> None:
        """Products keep the size of what goes through them."""
        values = self._draw.standard_normal((outputs, inputs), np.float32) / np.sqrt(inputs)
        data = gguf.quants.quantize(values.astype(np.float32), kind)
        self.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    def norm(self, name: str, size: int, weight: float = 1.0) -> None:
        self.add_tensor(f"{name}.weight", np.full(size, weight, np.float32))


def write(path: Path, vocabulary: int = 16384, layers: int = LAYERS) -> None:
    """The file; fewer layers are for trying it out."""
    w = Writer(path)
    near = [i % PERIOD != PERIOD - 1 for i in range(layers)]
    numbers(w, near)
    tokens(w, vocabulary)
    w.matrix("token_embd", WIDTH, vocabulary)
    w.matrix("per_layer_model_proj", WIDTH, layers * WIDTH, BF16)
    w.norm("per_layer_proj_norm", WIDTH)
    w.norm("output_norm", WIDTH)
    w.matrix("output", WIDTH, OUT)
    for i, local in enumerate(near):
        block(w, f"blk.{i}.", *(NEAR if local else FAR))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def numbers(w: Writer, near: list[bool]) -> None:
    """The metadata of the released file."""
    w.add_context_length(262144)
    w.add_embedding_length(WIDTH)
    w.add_embedding_length_out(OUT)
    w.add_embedding_length_per_layer_input(WIDTH)
    w.add_block_count(len(near))
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv([NEAR[1] if local else FAR[1] for local in near])
    for suffix, (size, _) in (("", FAR), ("_swa", NEAR)):
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            w.add_uint32(f"{NAME}.{key}{suffix}", size)
    w.add_sliding_window(1024)
    w.add_sliding_window_pattern(near)
    w.add_rope_freq_base(1e6)
    w.add_rope_freq_base_swa(1e4)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)


def tokens(w: Writer, size: int) -> None:
    """A vocabulary of so many tokens: bytes, letters, and pairs of them."""
    letters = ["▁", "\n", *"abcdefghijklmnopqrstuvwxyz"]
    merges = [f"{a} {b}" for a in letters[2:] for b in letters[2:]]
    made = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    made += [pair.replace(" ", "") for pair in merges]
    if size < len(made):
        raise SystemExit(f"--vocabulary takes at least {len(made)} tokens, got {size}")
    kinds = [CONTROL] * len(SPECIAL) + [BYTE] * 256
    kinds[SPECIAL.index("<unk>")] = UNKNOWN
    made += [f"unused{i}" for i in range(size - len(made))]
    w.add_tokenizer_model("gemma4")
    w.add_token_list(made)
    w.add_token_types(kinds + [NORMAL] * (size - len(kinds)))
    w.add_token_scores([0.0] * size)
    w.add_token_merges(merges)
    for role in ("bos", "eos", "mask"):
        w.add_uint32(f"tokenizer.ggml.{role}_token_id", SPECIAL.index(f"<{role}>"))
    w.add_uint32("tokenizer.ggml.unknown_token_id", SPECIAL.index("<unk>"))
    w.add_uint32("tokenizer.ggml.padding_token_id", SPECIAL.index("<pad>"))
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)
    w.add_add_space_prefix(False)


def block(w: Writer, b: str, head: int, kv_heads: int) -> None:
    for name in ("attn_norm", "ffn_norm"):
        w.norm(f"{b}{name}", WIDTH)
    for name in ("post_attention_norm", "post_ffw_norm", "post_norm"):
        w.norm(f"{b}{name}", WIDTH, AFTER)
    for name, heads in (("q", HEADS), ("k", kv_heads), ("v", kv_heads)):
        w.matrix(f"{b}attn_{name}", WIDTH, heads * head)
    w.matrix(f"{b}attn_output", HEADS * head, WIDTH)
    for name, weight in HEAD_NORMS.items():
        w.norm(f"{b}attn_{name}_norm", head, weight)
    for name in ("gate", "up"):
        w.matrix(f"{b}ffn_{name}", WIDTH, INNER)
    w.matrix(f"{b}ffn_down", INNER, WIDTH)
    w.matrix(f"{b}inp_gate", WIDTH, WIDTH)
    w.matrix(f"{b}proj", WIDTH, WIDTH)
    w.norm(f"{b}layer_output_scale", 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedding_file")
    parser.add_argument("path", type=Path)
    parser.add_argument("--vocabulary", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=LAYERS)
    args = parser.parse_args()
    write(args.path, args.vocabulary, args.layers)


if __name__ == "__main__":
    main()
