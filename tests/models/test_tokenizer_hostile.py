"""Vocabularies that cannot be right: each gets an error that says what is wrong."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.tokenizer import Tokenizer
from ferro.models.vocabulary import BadVocabulary
from tests.models.vocabularies import metadata


def problem(name: str, **changes: Any) -> str:
    with pytest.raises(BadVocabulary) as caught:
        Tokenizer(metadata(name, **changes))
    assert caught.value.exit_code == 2
    return caught.value.problem


def tokens(name: str, **changes: str) -> list[str]:
    """The tokens of a vocabulary, some of them (``t7="x"``) replaced."""
    found = list(metadata(name)["tokenizer.ggml.tokens"])
    for at, text in changes.items():
        found[int(at[1:])] = text
    return found


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no model": ("lfm2", {"model": None}, "the key `tokenizer.ggml.model` is missing"),
    "another model": (
        "lfm2",
        {"model": "bert"},
        "`bert` is not known (known: gpt2, llama, gemma4)",
    ),
    "model is a number": ("gemma3", {"model": 3}, "tokenizer.ggml.model must be a text, it is 3"),
    "no pre": ("lfm2", {"pre": None}, "tokenizer.ggml.pre is missing (known, and"),
    "another pre": ("lfm2", {"pre": "lfm2.5"}, "the pre-tokeniser `lfm2.5` is not known (known"),
    "pre is a number": ("lfm2", {"pre": 7}, "the pre-tokeniser `7` is not known"),
    "pre is an array": ("lfm2", {"pre": np.zeros(0)}, "the pre-tokeniser `[]` is not known"),
    "model is an array": ("lfm2", {"model": np.arange(3)}, "must be a text, it is [0, 1, 2]"),
    "no tokens": ("lfm2", {"tokens": None}, "the key `tokenizer.ggml.tokens` is missing"),
    "empty": ("lfm2", {"tokens": []}, "tokenizer.ggml.tokens is empty"),
    "one text": ("lfm2", {"tokens": "abc"}, "tokenizer.ggml.tokens must be an array of texts"),
    "numbers": ("lfm2", {"tokens": [1, 2]}, "tokenizer.ggml.tokens must be an array of texts"),
    "an array": (
        "lfm2",
        {"tokens": np.arange(3)},
        "tokenizer.ggml.tokens must be an array of texts",
    ),
    "duplicate": ("lfm2", {"tokens": tokens("lfm2", t400="A")}, "are both 'A'"),
    "too long": ("gemma3", {"tokens": tokens("gemma3", t400="x" * 10**6)}, "1000000 characters"),
    "no merges": ("lfm2", {"merges": None}, "the key `tokenizer.ggml.merges` is missing"),
    "no merges, gemma4": ("gemma4", {"merges": None}, "`tokenizer.ggml.merges` is missing"),
    "no pair": ("lfm2", {"merges": ["a b", "ab"]}, "merges: entry 1 is no pair: 'ab'"),
    "half a pair": ("gemma4", {"merges": [" b"]}, "merges: entry 0 is no pair: ' b'"),
    "an empty pair": ("lfm2", {"merges": [""]}, "merges: entry 0 is no pair: ''"),
    "no scores": ("gemma3", {"scores": None}, "the key `tokenizer.ggml.scores` is missing"),
    "few scores": ("gemma3", {"scores": [0.0] * 3}, "scores has 3 entries for 512 tokens"),
    "no number": ("gemma3", {"scores": [float("nan")] * 512}, "the score of token 0 is NaN"),
    "texts as scores": ("gemma3", {"scores": ["1"] * 512}, "scores must be an array of numbers"),
    "few types": ("lfm2", {"token_type": [1] * 511}, "token_type has 511 entries for 512 tokens"),
    "strange type": ("lfm2", {"token_type": [1] * 511 + [77]}, "token 511 has the unknown type 77"),
    "negative type": ("lfm2", {"token_type": [-1] * 512}, "token 0 has the unknown type -1"),
    "real types": ("lfm2", {"token_type": [1.5] * 512}, "token_type must be an array of numbers"),
    "types in a table": ("lfm2", {"token_type": [[1] * 512]}, "token_type must be an array of num"),
    "no byte": ("gemma3", {"token_type": [6] * 512}, "token 0 is a byte, but its text is '<pad>'"),
    "bos outside": ("lfm2", {"bos_token_id": 512}, "bos_token_id is 512, but there are 512 tokens"),
    "eos below": ("lfm2", {"eos_token_id": -1}, "eos_token_id is -1, but there are 512 tokens"),
    "bos is a text": ("lfm2", {"bos_token_id": "1"}, "must be a whole number, it is '1'"),
    "bos is an array": ("lfm2", {"bos_token_id": np.zeros(0)}, "must be a whole number, it is []"),
    "bos is a long text": (
        "lfm2",
        {"bos_token_id": "x" * 10**6},
        "must be a whole number, it is 'xx",
    ),
    "bos is true": ("lfm2", {"bos_token_id": True}, "must be a whole number, it is True"),
    "bos missing": ("lfm2", {"bos_token_id": None}, "texts get BOS, but tokenizer.ggml.bos_token"),
    "eos missing": (
        "gpt-2",
        {"eos_token_id": None, "add_eos_token": True},
        "texts get EOS, but tokenizer.ggml.eos_token_id is missing",
    ),
    "flag": ("lfm2", {"add_bos_token": "yes"}, "add_bos_token must be true or false, it is 'yes'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    name, changes, message = WRONG[case]
    said = problem(name, **changes)
    assert message in said and len(said) < 500


def test_a_file_is_named() -> None:
    class Named(dict[str, Any]):
        path = "some.gguf"

    with pytest.raises(BadVocabulary, match=r"^some\.gguf: "):
        Tokenizer(Named(metadata("lfm2", merges=None)))


def test_a_role_may_be_said_to_have_no_token() -> None:
    found = Tokenizer(metadata("smollm", padding_token_id=(1 << 32) - 1))
    assert found.vocabulary.role("padding") is None


def test_a_vocabulary_without_merges_spells() -> None:
    found = Tokenizer(metadata("lfm2", merges=[]))
    assert found.decode(found.encode("hi é", add_special=False)) == "hi é"


def test_of_equal_merges_the_first_counts() -> None:
    pairs = metadata("lfm2")["tokenizer.ggml.merges"]
    twice = Tokenizer(metadata("lfm2", merges=pairs + pairs[::-1]))
    once = Tokenizer(metadata("lfm2"))
    assert twice.encode("the weather in there") == once.encode("the weather in there")


def test_merges_that_make_no_token_are_spelled() -> None:
    found = Tokenizer(metadata("lfm2", merges=["q q", "qq q"]))
    assert found.decode(found.encode("qqqq", add_special=False)) == "qqqq"


def test_characters_without_byte_tokens_are_unknown() -> None:
    plain = [
        f"[{i}]" if text.startswith("<0x") else text for i, text in enumerate(tokens("gemma3"))
    ]
    kinds = [1 if kind == 6 else kind for kind in metadata("gemma3")["tokenizer.ggml.token_type"]]
    found = Tokenizer(metadata("gemma3", tokens=plain, token_type=kinds))
    assert found.encode("🙂", add_special=False) == [3]


def test_tokens_that_are_no_utf_8_keep_their_bytes() -> None:
    # a GGUF reader gives bytes that are no UTF-8 as lone surrogates
    found = Tokenizer(metadata("gemma3", tokens=tokens("gemma3", t400="\udcff\udcfe")))
    assert found.piece(400) == b"\xff\xfe"


def runs(count: int) -> dict[str, Any]:
    """Special tokens "a", "aa", and so on."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["b", *("a" * n for n in range(1, count))],
        "tokenizer.ggml.token_type": [1] + [4] * (count - 1),
        "tokenizer.ggml.scores": [0.0] * count,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def test_special_tokens_of_many_lengths_are_found_in_time() -> None:
    started = time.process_time()
    assert Tokenizer(runs(200)).encode("a" * 1000 + "b") == [199] * 5 + [5, 0]
    assert time.process_time() - started < 5
    with pytest.raises(BadVocabulary, match="special tokens of 399 lengths"):
        Tokenizer(runs(400))


KEYS = sorted(metadata("gemma4"))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 600),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.text(max_size=8), max_size=8),
    st.lists(st.integers(-2, 9), max_size=8),
    st.lists(st.floats(), max_size=8),
    st.just([]),
)


@given(name=st.sampled_from(["lfm2", "gemma3", "gemma4"]), key=st.sampled_from(KEYS), value=VALUES)
def test_any_value_is_taken_or_refused(name: str, key: str, value: Any) -> None:
    try:
        found = Tokenizer({**metadata(name), key: value})
    except BadVocabulary:
        return
    assert all(0 <= i < len(found) for i in found.encode("Hi <bos> é\n\n"))


@given(made=st.lists(st.text(min_size=1, max_size=3), min_size=1, unique=True), text=st.text())
def test_any_tokens_give_ids_that_are_tokens(made: list[str], text: str) -> None:
    for model in ("llama", "gemma4"):
        found = Tokenizer(
            {
                "tokenizer.ggml.model": model,
                "tokenizer.ggml.tokens": made,
                "tokenizer.ggml.scores": [float(len(t)) for t in made],
                "tokenizer.ggml.merges": [f"{t[0]} {t[1:]}" for t in made if len(t) > 1],
                "tokenizer.ggml.add_bos_token": False,
                "tokenizer.ggml.bos_token_id": 0,
            }
        )
        assert all(0 <= i < len(made) for i in found.encode(text))
