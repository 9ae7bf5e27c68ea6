"""The tiny models that llama.cpp's answers in tests/data were recorded for.

Weights are drawn from a seed, so that the files need not be kept: the language models
``llama-tiny``, ``lfm2-tiny`` and ``gemma3-tiny`` and encoders, width 256, a vocabulary learnt from
a few lines, in types f32, q8_0 and q4_1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np

DATA = Path(__file__).parents[1] / "data" / "tiny"
NAMES = ("llama-tiny", "lfm2-tiny", "gemma3-tiny")
TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_1": gguf.GGMLQuantizationType.Q4_1,
}
WIDTH, HEADS, KV_HEADS, HEAD, FF, VOCABULARY = 256, 4, 2, 64, 704, 512
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
STRONG, STRONG_NORM = 3, 8  # layers must outweigh the embedding

_folder = TemporaryDirectory(prefix="ferro-tiny-")


@lru_cache(maxsize=None)
def path(name: str, kind: str) -> Path:
    """The file of a model, written when it is asked for first."""
    file = Path(_folder.name) / f"{name}-{kind}.gguf"
    architecture = name.removesuffix("-tiny")
    writer = Writer(file, architecture.removesuffix("-decision"), kind)
    WRITERS[architecture](writer)
    writer.finish()
    return file


def answers(name: str, kind: str) -> dict[str, Any]:
    """llama.cpp's: for n in 1, 7, 100 ``ids_n``, ``logits_n`` (float32 [n, vocabulary]; every
    tenth row for 100) and ``greedy_n``, the 16 ids that follow; of an embedding model ``pooled_n``
    (float32 [out]), of a decision model ``scores_n`` (float32 [n, 3]), of a text ``text`` its
    ``text_ids``."""
    with np.load(DATA / f"{name}-{kind}.npz") as found:
        return dict(found)


class Writer(gguf.GGUFWriter):
    """Draws tensors and writes them; sizes in the order of the file, inputs first."""

    def __init__(self, file: Path, architecture: str, kind: str) -> None:
        super().__init__(file, architecture)
        self.random, self.type = np.random.default_rng(0), TYPES[kind]

    def matrix(self, name: str, *sizes: int, gain: float = 1.0, plain: bool = False) -> None:
        data = self.random.standard_normal(sizes[::-1], dtype=np.float32)
        kind = TYPES["f32"] if plain else self.type
        data = data * np.float32(gain / np.sqrt(sizes[0]))
        self.add_tensor(f"{name}.weight", gguf.quants.quantize(data, kind), raw_dtype=kind)

    def norm(self, name: str, size: int, gain: float = 1) -> None:
        data = gain * (1 + 0.1 * self.random.standard_normal(size, dtype=np.float32))
        self.add_tensor(f"{name}.weight", data)

    def bias(self, name: str, size: int) -> None:
        data = 0.1 * self.random.standard_normal(size, dtype=np.float32)
        self.add_tensor(f"{name}.bias", data)

    def finish(self) -> None:
        self.write_header_to_file()
        self.write_kv_data_to_file()
        self.write_tensors_to_file()
        self.close()


# --- models --------------------------------------------------------------------------------------


def llama(w: Writer) -> None:
    numbers(w, 4, 8192, KV_HEADS, 1e5, 1e-5)
    w.add_rope_dimension_count(HEAD)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    roles = {"bos": special[1], "eos": special[2], "unknown": special[0], "padding": special[2]}
    byte_level(w, "smollm", special, roles)
    w.add_add_bos_token(False)
    w.matrix("token_embd", WIDTH, VOCABULARY, gain=3)
    w.norm("output_norm", WIDTH)
    w.matrix("output", WIDTH, VOCABULARY, gain=3)
    for i in range(4):
        attention(w, f"blk.{i}.")
        feed_forward(w, f"blk.{i}.")


def lfm2(w: Writer, head_blocks: int = 0) -> None:
    attends = (1, 3)
    kv_heads = [KV_HEADS if i in attends else 0 for i in range(4)] + [HEADS] * head_blocks
    inner = [FF] * 4 + [4 * WIDTH] * head_blocks if head_blocks else FF
    numbers(w, 4 + head_blocks, 32768, kv_heads, 1e6, 1e-5, inner)
    w.add_shortconv_l_cache(3)
    special = (
        "<|pad|> <|startoftext|> <|endoftext|> <|fim_pre|> <|fim_mid|> <|fim_suf|> <|im_start|>"
        " <|im_end|> <|reserved_7|> <|reserved_8|> <|reserved_9|> <|reserved_10|> <|reserved_11|>"
        " <|mask|>"
    ).split()
    roles = {"bos": special[1], "eos": special[7], "padding": special[0], "mask": special[13]}
    byte_level(w, "lfm2", special, roles)
    w.add_add_bos_token(not head_blocks)
    w.matrix("token_embd", WIDTH, VOCABULARY, gain=3)
    w.norm("token_embd_norm", WIDTH)
    for i in range(4):
        b = f"blk.{i}."
        if i in attends:
            attention(w, b)
            head_norms(w, b)
        else:
            w.norm(f"{b}attn_norm", WIDTH)
            w.matrix(f"{b}shortconv.in_proj", WIDTH, 3 * WIDTH)
            w.matrix(f"{b}shortconv.conv", 3, WIDTH, plain=True)
            w.matrix(f"{b}shortconv.out_proj", WIDTH, WIDTH, gain=STRONG)
        feed_forward(w, b)


def lfm2_decision(w: Writer) -> None:
    """The trunk of ``lfm2``, and a head of two blocks with a scorer."""
    lfm2(w, head_blocks=2)
    w.add_causal_attention(False)
    w.add_layer_norm_eps(1e-5)
    w.add_token_type_count(3)
    w.add_string("lfm2.decision.type", "lfm2-d1-omni")
    w.add_uint32("lfm2.decision.block_count", 2)
    for name, value in (("choice", 1.5), ("choice.3_5", 1.25), ("score", 2.0), ("noul", 0.8)):
        w.add_float32(f"lfm2.decision.temperature.{name}", value)
    for b in ("blk.4.", "blk.5."):
        products = {"attn_qkv": (WIDTH, 3 * WIDTH), "attn_output": (WIDTH, WIDTH)}
        products |= {"ffn_up": (WIDTH, 4 * WIDTH), "ffn_down": (4 * WIDTH, WIDTH)}
        for name, sizes in products.items():
            w.matrix(f"{b}{name}", *sizes)
            w.bias(f"{b}{name}", sizes[1])
        for name in ("attn_norm", "ffn_norm"):
            w.norm(f"{b}{name}", WIDTH)
            w.bias(f"{b}{name}", WIDTH)
    w.matrix("token_types", WIDTH, 3, gain=10, plain=True)
    w.norm("cls.norm", WIDTH)
    w.bias("cls.norm", WIDTH)
    w.matrix("cls", WIDTH, WIDTH)
    w.bias("cls", WIDTH)
    w.matrix("cls.output", WIDTH, 1, gain=3)
    w.bias("cls.output", 1)


def gemma3(w: Writer, add_eos: bool = False) -> None:
    numbers(w, 6, 8192, KV_HEADS, 1e6, 1e-6)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_sliding_window(16)
    w.matrix("token_embd", WIDTH, spaced(w, VOCABULARY, add_eos=add_eos))
    w.norm("output_norm", WIDTH)
    for i in range(6):
        b = f"blk.{i}."
        attention(w, b)
        head_norms(w, b)
        feed_forward(w, b)
        w.norm(f"{b}post_attention_norm", WIDTH, gain=STRONG_NORM)
        w.norm(f"{b}post_ffw_norm", WIDTH, gain=STRONG_NORM)


def gemma_embedding(w: Writer) -> None:
    """The blocks of ``gemma3``, seen in both directions, and two dense layers behind pooling."""
    gemma3(w, add_eos=True)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.add_uint32("gemma-embedding.dense_2_feat_in", WIDTH)
    w.add_uint32("gemma-embedding.dense_2_feat_out", 3 * WIDTH)
    w.add_uint32("gemma-embedding.dense_3_feat_in", 3 * WIDTH)
    w.add_uint32("gemma-embedding.dense_3_feat_out", WIDTH)
    w.matrix("dense_2", WIDTH, 3 * WIDTH)
    w.matrix("dense_3", 3 * WIDTH, WIDTH)


def gemma_embedding2(w: Writer) -> None:
    """Every sixth block sees all keys, with heads twice as large and half as many for keys."""
    near = [i % 6 != 5 for i in range(6)]
    numbers(w, 6, 2048, [KV_HEADS if local else KV_HEADS // 2 for local in near], 1e6, 1e-6)
    w.add_rope_freq_base_swa(1e4)
    w.add_sliding_window(32)
    w.add_sliding_window_pattern(near)
    for suffix, size in (("", 2 * HEAD), ("_swa", HEAD)):
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            w.add_uint32(f"gemma-embedding2.{key}{suffix}", size)
    w.add_embedding_length_per_layer_input(HEAD)
    w.add_embedding_length_out(192)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.matrix("token_embd", WIDTH, spaced(w, VOCABULARY, "gemma4", add_eos=True))
    w.norm("output_norm", WIDTH)
    w.matrix("output", WIDTH, 192)
    w.matrix("per_layer_model_proj", WIDTH, HEAD * 6, gain=np.sqrt(WIDTH))
    w.norm("per_layer_proj_norm", HEAD)
    for i, local in enumerate(near):
        b, head = f"blk.{i}.", HEAD if local else 2 * HEAD
        attention(w, b, head, KV_HEADS if local else KV_HEADS // 2)
        head_norms(w, b, head)
        feed_forward(w, b)
        w.matrix(f"{b}inp_gate", WIDTH, HEAD)
        w.matrix(f"{b}proj", HEAD, WIDTH)
        for name in ("post_attention_norm", "post_ffw_norm", "post_norm"):
            w.norm(f"{b}{name}", WIDTH)
        w.norm(f"{b}layer_output_scale", 1)


WRITERS = {
    "llama": llama,
    "lfm2": lfm2,
    "lfm2-decision": lfm2_decision,
    "gemma3": gemma3,
    "gemma-embedding": gemma_embedding,
    "gemma-embedding2": gemma_embedding2,
}


def numbers(
    w: Writer,
    layers: int,
    context: int,
    kv_heads: int | list[int],
    base: float,
    eps: float,
    inner: int | list[int] = FF,
) -> None:
    w.add_context_length(context)
    w.add_embedding_length(WIDTH)
    w.add_block_count(layers)
    w.add_feed_forward_length(inner)
    w.add_head_count(HEADS)
    w.add_head_count_kv(kv_heads)
    w.add_rope_freq_base(base)
    w.add_layer_norm_rms_eps(eps)


def attention(w: Writer, b: str, head: int = HEAD, kv_heads: int = KV_HEADS) -> None:
    w.norm(f"{b}attn_norm", WIDTH)
    for name, heads in (("q", HEADS), ("k", kv_heads), ("v", kv_heads)):
        w.matrix(f"{b}attn_{name}", WIDTH, heads * head)
    w.matrix(f"{b}attn_output", HEADS * head, WIDTH, gain=STRONG)


def head_norms(w: Writer, b: str, head: int = HEAD) -> None:
    w.norm(f"{b}attn_q_norm", head)
    w.norm(f"{b}attn_k_norm", head)


def feed_forward(w: Writer, b: str) -> None:
    w.norm(f"{b}ffn_norm", WIDTH)
    w.matrix(f"{b}ffn_gate", WIDTH, FF)
    w.matrix(f"{b}ffn_up", WIDTH, FF)
    w.matrix(f"{b}ffn_down", FF, WIDTH, gain=STRONG)


# --- vocabularies --------------------------------------------------------------------------------

CORPUS = """\
The quick brown fox jumps over the lazy dog while the river runs past the old stone bridge.
A compiler turns a small language into fast code, and a runtime keeps the memory and the threads in order.
When the model reads a question it looks at every option, weighs the evidence and returns one answer.
People ask where the station is, what the weather will be, how long the train takes and which ticket to buy.
Numbers such as 12, 345 and 2026 are split in groups; words like don't, we'll and they're keep their endings.
Temperature, pressure and light change during the day. The garden needs water, the kitchen needs bread.
Please write a short summary of the following text, then list the three most important points in order.
"""  # noqa: E501

CHATML = (
    "{{- bos_token -}}{%- for message in messages -%}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def byte_level(w: Writer, pre: str, special: list[str], roles: dict[str, str]) -> None:
    letters = byte_letters()
    words = re.findall(r" ?[A-Za-z]+|'[a-z]+|\d{1,3}| ?[^\sA-Za-z\d]+|\s+", CORPUS)
    written = ["".join(letters[byte] for byte in word.encode()) for word in words]
    merges = learn_merges(written, letters, VOCABULARY - 256 - len(special))
    tokens = special + letters + [a + b for a, b in merges]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([CONTROL] * len(special) + [NORMAL] * (len(tokens) - len(special)))
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    for role, text in roles.items():
        w.add_uint32(f"tokenizer.ggml.{role}_token_id", tokens.index(text))
    bos = "" if pre == "smollm" else "{{- bos_token -}}"
    w.add_chat_template(CHATML.replace("{{- bos_token -}}", bos))


def spaced(w: Writer, size: int, model: str = "llama", add_eos: bool = False) -> int:
    """A vocabulary with scores, or merges for "gemma4", and a mark for a space; gives how many
    tokens it has."""
    special = "<pad> <eos> <bos> <unk> <mask> <start_of_turn> <end_of_turn>".split()
    marked = CORPUS.replace(" ", "▁")
    letters = [*sorted(set(marked) - {"\n"}), "\n"]
    words = re.findall(r"▁?[^▁\n]+", marked)
    merges = learn_merges(words, letters, size - 256 - len(special) - len(letters))
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    scores = [-1e4] * len(tokens) + [-float(i) for i in range(len(merges))]
    tokens += [a + b for a, b in merges]
    kinds = [CONTROL] * len(special) + [BYTE] * 256
    kinds[3] = UNKNOWN
    w.add_tokenizer_model(model)
    w.add_token_list(tokens)
    w.add_token_types(kinds + [NORMAL] * (len(tokens) - len(kinds)))
    w.add_token_scores(scores)
    if model == "gemma4":
        w.add_token_merges([f"{a} {b}" for a, b in merges])
    for role, token in (("bos", 2), ("eos", 1), ("unknown", 3), ("padding", 0), ("mask", 4)):
        w.add_uint32(f"tokenizer.ggml.{role}_token_id", token)
    w.add_add_bos_token(True)
    w.add_add_eos_token(add_eos)
    w.add_add_space_prefix(False)
    return len(tokens)


def byte_letters() -> list[str]:
    """The printable letter for each byte in a byte-level vocabulary."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]


def learn_merges(words: Iterable[str], letters: Sequence[str], count: int) -> list[tuple[str, str]]:
    """Greedy byte pair encoding: up to ``count`` pairs whose joined piece is new."""
    split: Counter[tuple[str, ...]] = Counter(tuple(word) for word in words)
    known, merges = set(letters), list[tuple[str, str]]()
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, n in split.items():
            for pair in pairwise(word):
                pairs[pair] += n
        new = {pair: n for pair, n in pairs.items() if "".join(pair) not in known}
        if not new:
            break
        best = min(new, key=lambda pair: (-new[pair], pair))
        merges.append(best)
        known.add("".join(best))
        joined: Counter[tuple[str, ...]] = Counter()
        for word, n in split.items():
            joined[merged(word, best)] += n
        split = joined
    return merges


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out, i = [], 0
    while i < len(word):
        step = 2 if word[i : i + 2] == pair else 1
        out.append("".join(word[i : i + step]))
        i += step
    return tuple(out)
