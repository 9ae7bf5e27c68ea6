"""Writes a decision model with the shape of d1-omni-600M and drawn weights, in Q8_0.

    python -m benchmarks.decision_file d1-shape.gguf

Its scores mean nothing; its time is that of the real one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from ferro.report import emit

TYPES = 3
F32, Q8_0 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0
NORMAL, CONTROL = 1, 3
SPECIAL = {1: "<|startoftext|>", 2: "<|endoftext|>", 7: "<|im_end|>", 16: "<|mask|>"}
SPECIAL |= {17 + i: f"<|reserved_{7 + i}|>" for i in range(5)}  # the publisher's numbers

Matrices = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Sizes:
    """Those of d1-omni-600M. ``attends`` are the blocks of the trunk that have attention."""

    width: int = 1024
    trunk: int = 16
    attends: tuple[int, ...] = (2, 5, 8, 10, 12, 14)
    head_blocks: int = 2
    heads: int = 16
    kv_heads: int = 8
    inner: int = 4608
    vocabulary: int = 65536

    @property
    def head(self) -> int:
        return self.width // self.heads

    def matrices(self) -> Matrices:
        """Rows and columns of every matrix."""
        found = {"token_embd": (self.vocabulary, self.width)}
        for i in range(self.trunk + self.head_blocks):
            one = self.trunk_block(i) if i < self.trunk else self.head_block()
            found |= {f"blk.{i}.{name}": shape for name, shape in one.items()}
        return found | {"cls": (self.width, self.width), "cls.output": (1, self.width)}

    def trunk_block(self, i: int) -> Matrices:
        d, kv = self.width, self.kv_heads * self.head
        mixer = {"shortconv.in_proj": (3 * d, d), "shortconv.out_proj": (d, d)}
        if i in self.attends:
            mixer = {"attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, d)}
        ffn = {"ffn_gate": (self.inner, d), "ffn_up": (self.inner, d), "ffn_down": (d, self.inner)}
        return mixer | ffn

    def head_block(self) -> Matrices:
        d = self.width
        return {"attn_qkv": (3 * d, d), "attn_output": (d, d),
                "ffn_up": (4 * d, d), "ffn_down": (d, 4 * d)}  # fmt: skip

    def vectors(self) -> Iterator[tuple[str, tuple[int, ...], float]]:
        """Name, shape and mean of what is no matrix of weights."""
        d = self.width
        yield "token_embd_norm.weight", (d,), 1
        yield "token_types.weight", (TYPES, d), 0
        for i in range(self.trunk + self.head_blocks):
            b = f"blk.{i}."
            yield f"{b}attn_norm.weight", (d,), 1
            yield f"{b}ffn_norm.weight", (d,), 1
            if i in self.attends:
                yield f"{b}attn_q_norm.weight", (self.head,), 1
                yield f"{b}attn_k_norm.weight", (self.head,), 1
            elif i < self.trunk:
                yield f"{b}shortconv.conv.weight", (d, 3), 0
            if i >= self.trunk:
                yield f"{b}attn_norm.bias", (d,), 0
                yield f"{b}ffn_norm.bias", (d,), 0
                for name, (rows, _) in self.head_block().items():
                    yield f"{b}{name}.bias", (rows,), 0
        yield "cls.norm.weight", (d,), 1
        yield "cls.norm.bias", (d,), 0
        yield "cls.bias", (d,), 0
        yield "cls.output.bias", (1,), 0


def write(path: Path, sizes: Sizes) -> None:
    writer = gguf.GGUFWriter(path, "lfm2")
    keys(writer, sizes)
    vocabulary(writer, sizes.vocabulary)
    random = np.random.default_rng(0)
    for name, (rows, columns) in sizes.matrices().items():
        drawn = random.standard_normal((rows, columns), np.float32)
        kept = gguf.quants.quantize(drawn / np.float32(columns**0.5), Q8_0)
        writer.add_tensor(f"{name}.weight", kept, raw_dtype=Q8_0)
    for name, shape, mean in sizes.vectors():
        drawn = mean + 0.1 * random.standard_normal(shape, np.float32)
        writer.add_tensor(name, drawn.astype(np.float32), raw_dtype=F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def keys(writer: gguf.GGUFWriter, sizes: Sizes) -> None:
    more = sizes.head_blocks
    kv_heads = [sizes.kv_heads if i in sizes.attends else 0 for i in range(sizes.trunk)]
    writer.add_context_length(128000)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.trunk + more)
    writer.add_feed_forward_length([sizes.inner] * sizes.trunk + [4 * sizes.width] * more)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(kv_heads + [sizes.heads] * more)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    writer.add_shortconv_l_cache(3)
    writer.add_vocab_size(sizes.vocabulary)
    writer.add_token_type_count(TYPES)
    writer.add_string("lfm2.decision.type", "lfm2-d1-omni")
    writer.add_uint32("lfm2.decision.block_count", more)


def vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Letters for all bytes and one merge; the rest fills up."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    letters = [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]
    texts = iter([*letters, "ab", *(f"word{i}" for i in range(size))])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("lfm2")
    writer.add_token_list([SPECIAL.get(i) or next(texts) for i in range(size)])
    writer.add_token_types([CONTROL if i in SPECIAL else NORMAL for i in range(size)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(7)
    writer.add_mask_token_id(16)
    writer.add_add_bos_token(False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decision_file", description=__doc__)
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    write(path, Sizes())
    emit(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
