"""The metadata of tokenizers, and texts: ids that exist, the same text whole and as a stream."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from ferro.models.detokenise import Detokeniser
from ferro.models.gguf_metadata import Metadata
from ferro.models.tokenizer import Tokenizer
from ferro.models.vocabulary import BadVocabulary
from tests.fuzz.target import Choices, Target
from tests.models import vocabularies

PREFIX = "tokenizer.ggml."
MODELS = ("gpt2", "llama", "gemma4", "bert", "")
ROLES = ("bos", "eos", "eot", "eom", "unknown", "padding", "mask", "prefix")
FLAGS = ("add_bos_token", "add_eos_token", "add_space_prefix")
ODD: tuple[Any, ...] = (0, -1, 2**32 - 1, 1.5, float("nan"), "", "x", True, np.zeros(0), [])
TEXTS = (
    "",
    " ",
    "a",
    "▁",
    "<0x41>",
    "<0xZZ>",
    "<|im_end|>",
    "\ud800",
    "🙂",
    "aa a",
    "a b c",
    "\n\n",
)


def run(data: bytes) -> None:
    """Raises what is no BadVocabulary, and AssertionError for ids or texts that cannot be."""
    choices = Choices(data)
    values = vocabularies.metadata(vocabularies.NAMES[choices.number(len(vocabularies.NAMES))])
    for _ in range(choices.number(6)):
        change(values, choices)
    text = choices.text(1 << 12)
    try:
        tokenizer = Tokenizer(Metadata("some.gguf", values))
    except BadVocabulary as error:
        assert str(error).startswith("some.gguf: ") and error.exit_code == 2
        assert len(str(error)) < 2000 and str(error).isprintable()
        return
    for special in (False, True):
        ids = tokenizer.encode(text, add_special=special, parse_special=special)
        assert all(0 <= i < len(tokenizer) for i in ids)
        stream = Detokeniser(tokenizer, special=special)
        pieces = [stream.push(i) for i in ids]
        assert "".join([*pieces, stream.finish()]) == tokenizer.decode(ids, special=special)


def change(values: dict[str, Any], choices: Choices) -> None:
    """One change of a vocabulary."""
    kind = choices.number(8)
    if kind == 0:
        values[f"{PREFIX}model"] = MODELS[choices.number(len(MODELS))]
    elif kind == 1:
        role = f"{PREFIX}{ROLES[choices.number(len(ROLES))]}_token_id"
        values[role] = choices.number(1024) - 256
    elif kind == 2:
        values[f"{PREFIX}{FLAGS[choices.number(len(FLAGS))]}"] = bool(choices.number(2))
    elif kind == 3:
        keys = sorted(values)
        values[keys[choices.number(len(keys))]] = ODD[choices.number(len(ODD))]
    elif kind == 4:
        values.pop(sorted(values)[choices.number(len(values))] if values else "", None)
    else:
        key = f"{PREFIX}{('tokens', 'merges', 'token_type', 'scores')[choices.number(4)]}"
        found = values.get(key)
        if isinstance(found, list) and found:
            values[key] = replaced(found, choices)


def replaced(found: list[Any], choices: Choices) -> list[Any]:
    """A list with one entry changed, or a part of it."""
    at = choices.number(len(found))
    if choices.number(4) == 0:
        return found[:at]
    if isinstance(found[0], str):
        text = choices.text() if choices.number(2) else TEXTS[choices.number(len(TEXTS))]
        return [*found[:at], text, *found[at + 1 :]]
    return [*found[:at], choices.number(16) - 4, *found[at + 1 :]]


def seeds() -> list[bytes]:
    """Every vocabulary as it is, with a text of several scripts."""
    text = "It's 3 o'clock; é 🙂 日本語\n\n  <|im_end|>▁".encode()
    count = len(vocabularies.NAMES)
    return [bytes([i, 0]) + len(text).to_bytes(2, "little") + text for i in range(count)]


def mutate(data: bytes, random: Random) -> bytes:
    """A few bytes are changed, put in, or left out; more changes are asked for."""
    made = bytearray(data or b"\0\0")
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(made))
        if random.random() < 0.4:
            made[at:at] = random.randbytes(random.randint(1, 8))
        elif random.random() < 0.8:
            made[at] = random.getrandbits(8)
        else:
            del made[at : at + random.randint(1, 4)]
        if len(made) < 2:
            made += b"\0\0"
    made[1] = random.randrange(6)
    return bytes(made)


TARGET = Target(run, seeds, mutate)
