"""The numbers that describe a model, and the reading of them that architectures share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ferro.models.errors import WrongShape, WrongValue
from ferro.models.gguf import GgufFile

TOKENS = "tokenizer.ggml.tokens"
EMBEDDING = "token_embd.weight"
MEAN = 1  # GGUF's number for the mean of all rows


@dataclass(frozen=True)
class Layer:
    """One block. ``kv_heads`` 0 marks a short convolution in the place of attention; ``window`` 0
    means that every key is seen; ``rotated`` is how many of a head's dimensions turn, by positions
    divided by ``rope_factor``."""

    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    window: int = 0
    rope_base: float = 10000.0
    rotated: int = 0
    rope_factor: float = 1.0

    @property
    def attends(self) -> bool:
        return self.kv_heads > 0

    @property
    def q_width(self) -> int:
        return self.heads * self.head

    @property
    def kv_width(self) -> int:
        """Numbers of a token's keys, and as many of its values."""
        return self.kv_heads * self.head


@dataclass(frozen=True)
class Hyperparameters:
    """``score_scale`` multiplies the products of queries and keys. ``taps`` of short convolutions,
    ``head_blocks`` of a decision head at the end of ``layers`` and ``head_eps`` of its norms,
    ``per_layer`` inputs and ``out`` width of an embedding model are 0 where there are none."""

    architecture: str
    width: int
    vocabulary: int
    context: int
    eps: float
    layers: tuple[Layer, ...]
    score_scale: float = 1.0
    causal: bool = True
    taps: int = 0
    head_blocks: int = 0
    head_eps: float = 0.0
    per_layer: int = 0
    out: int = 0


class Reader:
    """The keys of one architecture, given without its name in front.

    Everything raises MissingKey or WrongValue, naming the key.
    """

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file, self.metadata, self.architecture = file, file.metadata, architecture
        self.width = self.integer("embedding_length")
        self.count = self._blocks()
        self.heads = self.integers("attention.head_count")
        self.feed_forward = self.integers("feed_forward_length")

    def key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int:
        return self.metadata.integer(self.key(name), default, least)

    def integers(self, name: str, default: int | None = None, least: int = 1) -> tuple[int, ...]:
        """One number for each block."""
        return self.metadata.integers(self.key(name), self.count, default, least)

    def real(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self.metadata.real(self.key(name), default)
        if value <= 0:
            raise self.wrong(name, f"{value} is not above 0")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self.metadata.flag(self.key(name), default)

    def head(self, suffix: str = "", default: int = 0) -> int:
        """The size of a head, the same for keys and values; ``suffix`` names a kind of block. Where
        nothing says it, heads share the width."""
        name, values = f"attention.key_length{suffix}", f"attention.value_length{suffix}"
        if default or self.key(name) in self.metadata:
            size = self.integer(name, default)
        else:
            name = "attention.head_count"
            size, rest = divmod(self.width, self.heads[0])
            if rest:
                raise self.wrong(name, f"{self.heads[0]} does not divide the width {self.width}")
        if size % 2:
            raise self.wrong(name, f"heads of {size} numbers: their size must be even")
        if size != self.integer(values, size):
            raise self.wrong(values, f"values must be as long as keys, which have {size} numbers")
        return size

    def rotated(self, head: int, suffix: str = "") -> int:
        """How many dimensions of a head turn."""
        name = f"rope.dimension_count{suffix}"
        size = self.integer(name, head)
        if size % 2 or size > head:
            raise self.wrong(name, f"{size} dimensions of heads of {head}")
        return size

    def rope_factor(self) -> float:
        """What positions are divided by before heads turn: 1, or that of linear scaling."""
        kind = self.metadata.text(self.key("rope.scaling.type"), "linear")
        if kind not in ("none", "linear"):
            raise self.wrong("rope.scaling.type", f"`{kind}` is not supported (none, linear)")
        old = "rope.scale_linear"
        name = old if self.key(old) in self.metadata else "rope.scaling.factor"
        # files write 0 for none
        factor = self.metadata.real(self.key(name), 0.0) if kind == "linear" else 0.0
        return self.real(name) if factor else 1.0

    def score_scale(self, head: int) -> float:
        """What products of queries and keys are multiplied by, 1 / sqrt(head) by default."""
        return self.metadata.real(self.key("attention.scale"), 0.0) or 1 / math.sqrt(head)

    def mean_pooling(self) -> None:
        """Raises WrongValue for an embedding model that makes its vectors in another way."""
        found = self.integer("pooling_type", MEAN, least=0)
        if found != MEAN:
            raise self.wrong("pooling_type", f"{found} is not supported ({MEAN}, the mean, is)")

    def kv_heads(self, default: int | None = None, least: int = 1) -> tuple[int, ...]:
        """Heads of keys and values in each block, divisors of the heads of queries."""
        found = self.integers("attention.head_count_kv", default, least)
        for heads, kv_heads in zip(self.heads, found, strict=True):
            if kv_heads and heads % kv_heads:
                raise self.wrong("attention.head_count_kv", f"{kv_heads} does not divide {heads}")
        return found

    def sliding(self) -> tuple[bool, ...]:
        """Which blocks see a window only: a truth value each, or all but every n-th."""
        name = "attention.sliding_window_pattern"
        value = self.metadata.get(self.key(name))
        if not isinstance(value, np.ndarray):
            period = self.integer(name, 6)
            return tuple(i % period < period - 1 for i in range(self.count))
        if len(value) != self.count:
            raise self.wrong(name, f"{len(value)} values for {self.count} blocks")
        return tuple(bool(flag) for flag in value.tolist())

    def made(self, layers: Iterable[Layer]) -> Hyperparameters:
        """The hyperparameters that every architecture has. Raises MissingTensor, WrongShape."""
        return Hyperparameters(
            self.architecture,
            self.width,
            self._vocabulary(),
            self.integer("context_length"),
            self.real("attention.layer_norm_rms_epsilon"),
            tuple(layers),
            self.score_scale(self.head()),
        )

    def wrong(self, name: str, problem: str) -> WrongValue:
        return self.wrong_key(self.key(name), problem)

    def wrong_key(self, key: str, problem: str) -> WrongValue:
        """For a key by its whole name."""
        return WrongValue(str(self.file.path), f"the key `{key}`: {problem}")

    def _blocks(self) -> int:
        # every block has tensors: this bounds what is made for each block
        count, most = self.integer("block_count"), len(self.file.tensors)
        if count > most:
            raise self.wrong("block_count", f"{count} blocks, but the file has {most} tensors")
        return count

    def _vocabulary(self) -> int:
        tokens = len(self.metadata.texts(TOKENS))
        shape = self.file.tensor(EMBEDDING).shape
        if len(shape) != 2 or shape[0] != tokens:
            raise WrongShape(
                str(self.file.path),
                f"tensor `{EMBEDDING}` has shape {list(shape)}, the vocabulary {tokens} tokens",
            )
        return tokens
