"""A vocabulary: the tokens of a model file, what each of them is, and which have a special part.

Made from metadata that is a plain mapping of keys to values, and checked before it is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from ferro.models.errors import ModelError
from ferro.models.gguf_metadata import shown

PREFIX = "tokenizer.ggml."
LONGEST_TOKEN = 4096  # bytes; the longest one known has 256
MODELS = ("gpt2", "llama", "gemma4")
NO_TOKEN = (1 << 32) - 1  # how files write that a role has no token
BYTE = re.compile("<0x[0-9A-F]{2}>")

ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unknown": "unknown_token_id",
    "separator": "seperator_token_id",  # spelled so in files
    "padding": "padding_token_id",
    "mask": "mask_token_id",
}
DEFAULT_ROLES: dict[str, dict[str, int]] = {"llama": {"bos": 1, "eos": 2, "unknown": 0}}

# Tokens that end a generation, known by their text as llama.cpp knows them, and tokens that fill
# in the middle of a text: both are control tokens whatever the file says of them.
ENDS = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>"
    " <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>"
    " <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> <|fim_pad|> <fim-pad> <fim_pad> <PAD>"
    " [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>".split()
)
FILLERS = frozenset(
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <PRE> ▁<PRE> <|fim_suffix|> <fim-suffix> <fim_suffix>"
    " <SUF> ▁<SUF> <|fim_middle|> <fim-middle> <fim_middle> <MID> ▁<MID>".split()
)


class BadVocabulary(ModelError):
    """A vocabulary that cannot be right, or of a kind that is not known here."""


class Kind(IntEnum):
    """What a token is: ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in order of their ids. ``ends`` are the ids that end a generation."""

    path: str
    model: str
    tokens: tuple[str, ...]
    kinds: bytes
    scores: tuple[float, ...]
    ids: Mapping[str, int]
    roles: Mapping[str, int]
    ends: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool

    def __len__(self) -> int:
        return len(self.tokens)

    def role(self, name: str) -> int | None:
        """The id of the token of a role ("bos", "eos", ...), if there is one."""
        return self.roles.get(name)

    def wrong(self, problem: str) -> BadVocabulary:
        """The error that says ``problem``."""
        return BadVocabulary(self.path, problem)


def read(metadata: Mapping[str, Any], *, add_bos: bool = False) -> Vocabulary:
    """The vocabulary of a file; ``add_bos`` holds where the file does not say it.

    Raises BadVocabulary, naming the key and the token that are wrong.
    """
    return _Reader(metadata).read(add_bos)


class _Reader:
    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.path = str(getattr(metadata, "path", "metadata"))

    def read(self, add_bos: bool) -> Vocabulary:
        model = self.one("model", str)
        if model not in MODELS:
            raise self.wrong(f"tokenizer `{model}` is not known (known: {', '.join(MODELS)})")
        tokens = self.tokens()
        ids = {token: i for i, token in enumerate(tokens)}
        if len(ids) < len(tokens):
            i = next(i for i, token in enumerate(tokens) if ids[token] != i)
            raise self.wrong(f"the tokens {i} and {ids[tokens[i]]} are both {tokens[i]!r}")
        kinds = self.kinds(tokens)
        roles = self.roles(model, len(tokens))
        ends = _correct(ids, kinds, roles)
        found = Vocabulary(
            self.path,
            model,
            tokens,
            bytes(kinds),
            self.scores(len(tokens)) if model == "llama" else (),
            ids,
            roles,
            ends,
            # its models were trained with BOS, and some of its files say otherwise
            model == "gemma4" or self.flag("add_bos_token", add_bos or model == "llama"),
            self.flag("add_eos_token", False),
            self.flag("add_space_prefix", model == "llama"),
        )
        for flag, role in ((found.add_bos, "bos"), (found.add_eos, "eos")):
            if flag and role not in roles:
                raise self.wrong(f"texts get {role.upper()}, but {PREFIX}{ROLES[role]} is missing")
        return found

    def tokens(self) -> tuple[str, ...]:
        given = tuple(texts(self.metadata, "tokens"))
        if not given:
            raise self.wrong(f"{PREFIX}tokens is empty")
        tokens = tuple(token or f"[EMPTY_{i}]" for i, token in enumerate(given))
        longest = max(range(len(tokens)), key=lambda i: len(tokens[i]))
        if len(tokens[longest]) > LONGEST_TOKEN:
            raise self.wrong(
                f"token {longest} has {len(tokens[longest])} characters (at most {LONGEST_TOKEN})"
            )
        return tokens

    def kinds(self, tokens: Sequence[str]) -> bytearray:
        key = f"{PREFIX}token_type"
        if key not in self.metadata:
            return bytearray([Kind.NORMAL]) * len(tokens)
        given = self.numbers(key, len(tokens), "iu")
        strange = np.flatnonzero((given < 0) | (given > max(Kind)))
        if len(strange):
            i = int(strange[0])
            raise self.wrong(f"{key}: token {i} has the unknown type {given[i]}")
        kinds = bytearray(given.astype(np.uint8).tobytes())
        for i in np.flatnonzero(given == Kind.BYTE).tolist():
            if not BYTE.fullmatch(tokens[i]):
                raise self.wrong(f"token {i} is a byte, but its text is {tokens[i]!r}")
        return kinds

    def scores(self, count: int) -> tuple[float, ...]:
        given = self.numbers(f"{PREFIX}scores", count, "fiu")
        strange = np.flatnonzero(given != given)
        if len(strange):
            raise self.wrong(f"{PREFIX}scores: the score of token {strange[0]} is NaN")
        return tuple(given.astype(np.float32).tolist())

    def roles(self, model: str, count: int) -> dict[str, int]:
        roles = dict(DEFAULT_ROLES.get(model, {}))
        for role, name in ROLES.items():
            value = self.metadata.get(f"{PREFIX}{name}")
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise self.wrong(f"{PREFIX}{name} must be a whole number, it is {shown(value)}")
            if value == NO_TOKEN:
                roles.pop(role, None)
                continue
            if not 0 <= value < count:
                raise self.wrong(f"{PREFIX}{name} is {value}, but there are {count} tokens")
            roles[role] = int(value)
        return {role: i for role, i in roles.items() if i < count}

    def numbers(self, key: str, count: int, dtypes: str) -> np.ndarray:
        if key not in self.metadata:
            raise self.wrong(f"the key `{key}` is missing")
        given = np.asarray(self.metadata[key])
        if given.ndim != 1 or (given.dtype.kind not in dtypes and given.size):
            raise self.wrong(f"{key} must be an array of numbers")
        if len(given) != count:
            raise self.wrong(f"{key} has {len(given)} entries for {count} tokens")
        return given

    def flag(self, name: str, default: bool) -> bool:
        value = self.metadata.get(PREFIX + name, default)
        if not isinstance(value, bool | np.bool_):
            raise self.wrong(f"{PREFIX}{name} must be true or false, it is {shown(value)}")
        return bool(value)

    def one(self, name: str, kind: type) -> Any:
        value = self.metadata.get(PREFIX + name)
        if value is None:
            raise self.wrong(f"the key `{PREFIX}{name}` is missing")
        if not isinstance(value, kind):
            raise self.wrong(f"{PREFIX}{name} must be a text, it is {shown(value)}")
        return value

    def wrong(self, problem: str) -> BadVocabulary:
        return BadVocabulary(self.path, problem)


def texts(metadata: Mapping[str, Any], name: str) -> list[str]:
    """The texts of ``tokenizer.ggml.NAME``. Raises BadVocabulary."""
    path = str(getattr(metadata, "path", "metadata"))
    given = metadata.get(PREFIX + name)
    if given is None:
        raise BadVocabulary(path, f"the key `{PREFIX}{name}` is missing")
    if isinstance(given, Sequence) and not isinstance(given, str):
        found = list(given)
        if set(map(type, found)) <= {str}:
            return found
    raise BadVocabulary(path, f"{PREFIX}{name} must be an array of texts")


def _correct(ids: Mapping[str, int], kinds: bytearray, roles: Mapping[str, int]) -> frozenset[int]:
    """Puts right what files are known to get wrong in ``kinds``; the ids that end a generation."""
    ends = {ids[text] for text in ENDS if text in ids}
    for i in ends | {ids[text] for text in FILLERS if text in ids}:
        kinds[i] = Kind.CONTROL
    ends.update(roles[role] for role in ("eos", "eot", "eom") if role in roles)
    # Where these two are, `</s>` and `<|end|>` are ordinary.
    if "<|tool_response>" in ids and "</s>" in ids:
        kinds[ids["</s>"]] = Kind.NORMAL
        ends.discard(ids["</s>"])
    harmony = {"<|return|>", "<|call|>"} <= ids.keys() or {"<|calls|>", "<|flush|>"} <= ids.keys()
    if harmony and "<|end|>" in ids:
        kinds[ids["<|end|>"]] = Kind.USER_DEFINED
        ends.discard(ids["<|end|>"])
    return frozenset(ends)
