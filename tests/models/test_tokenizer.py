"""Tokenisers against llama.cpp's ids, and what must hold for any text."""

from __future__ import annotations

import itertools
import json
import random
import time
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.detokenise import Detokeniser
from ferro.models.gguf import GgufFile
from ferro.models.merging import Words, merge
from ferro.models.pretokenise import PRE_TOKENISERS
from ferro.models.tokenizer import Tokenizer
from ferro.models.unicode_classes import LETTER, NUMBER, OTHER, SPACE, kinds
from tests.models.vocabularies import NAMES, SHARED, cases, metadata, tokenizer

LARGE = ("gemma-4", "gpt-2", "llama-bpe", "llama-spm", "qwen2")
REVERSIBLE = ("lfm2", "smollm", "gpt-2", "qwen2", "gemma3", "gemma4")
TEXTS = st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_llama_cpp_s(name: str) -> None:
    found = tokenizer(name)
    for text, plain, special in cases(name):
        assert found.encode(text, add_special=False, parse_special=False) == plain, text
        assert found.encode(text) == special, text


@pytest.mark.parametrize("name", LARGE)
def test_ids_of_real_vocabularies_are_llama_cpp_s(name: str) -> None:
    path = SHARED / "vocab" / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    found = Tokenizer(GgufFile(path).metadata)
    for case in json.loads(path.with_suffix(".json").read_text())["cases"]:
        text = case["text"]
        assert found.encode(text, add_special=False, parse_special=False) == case["ids"], text
        assert found.encode(text) == case["ids_parse_special"], text


# ------------------------------------------------------------------------------------- any text


@pytest.mark.parametrize("name", REVERSIBLE)
@given(text=TEXTS)
def test_decoding_gives_the_text_back(name: str, text: str) -> None:
    found = tokenizer(name)
    ids = found.encode(text, add_special=False, parse_special=False)
    assert found.decode(ids) == text


@given(text=TEXTS)
def test_a_prefix_blank_is_put_before_texts_only(text: str) -> None:
    found = tokenizer("llama")
    ids = found.encode(text, add_special=False, parse_special=False)
    assert found.decode(ids) == (f" {text}" if text else "")


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS, special=st.booleans())
def test_a_stream_gives_what_decoding_at_once_gives(name: str, text: str, special: bool) -> None:
    found = tokenizer(name)
    ids = found.encode(f"<|im_start|>{text}<eos>")
    stream = Detokeniser(found, special=special)
    parts = [stream.push(i) for i in ids]
    assert not stream.waiting
    assert "".join(parts) + stream.finish() == found.decode(ids, special=special)
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@pytest.mark.parametrize("name", NAMES)
@given(ids=st.lists(st.integers(0, 511), max_size=40))
def test_any_ids_can_be_streamed(name: str, ids: list[int]) -> None:
    stream = Detokeniser(tokenizer(name), special=True)
    text = "".join(map(stream.push, ids)) + stream.finish()
    assert text == tokenizer(name).decode(ids, special=True)


@pytest.mark.parametrize("name", ["gemma3", "gemma4"])
@given(text=st.text("ab ▁thenr\n>é🙂", max_size=40))
def test_cutting_into_words_changes_nothing(name: str, text: str) -> None:
    whole = Tokenizer(metadata(name))
    whole._encoder._words = Words(">▁".join("▁abthenr\n>é🙂") + ">▁" + "▁a▁b▁t▁h▁e▁n▁r▁é▁🙂▁")
    assert whole.encode(text) == tokenizer(name).encode(text)


def test_half_a_character_waits_for_its_other_half() -> None:
    found = tokenizer("lfm2")
    ids = found.encode("é🙂", add_special=False)
    assert len(ids) == 6
    stream = Detokeniser(found)
    assert [stream.push(i) for i in ids] == ["", "é", "", "", "", "🙂"]
    assert stream.push(ids[2]) == "" and stream.waiting
    assert stream.finish() == "\ufffd"


def test_bytes_that_cannot_become_a_character_are_not_held_back() -> None:
    found = tokenizer("lfm2")
    start, letter = found.encode("é", add_special=False)[0], found.encode("a", add_special=False)[0]
    stream = Detokeniser(found)
    assert [stream.push(i) for i in (start, letter)] == ["", "\ufffda"]


def test_lone_surrogates_count_as_the_replacement_character() -> None:
    found = tokenizer("lfm2")
    assert found.encode("a\ud800b") == found.encode("a\ufffdb")
    assert found.encode("\ud83d\ude42") == found.encode("🙂")  # a pair is one character


def test_control_tokens_are_shown_on_request_only() -> None:
    found = tokenizer("lfm2")
    ids = found.encode("<|im_start|>hi")
    assert found.decode(ids) == "hi"
    assert found.decode(ids, special=True) == "<|startoftext|><|im_start|>hi"


def test_an_id_outside_of_the_vocabulary_is_an_error() -> None:
    for token in (-1, 512):
        with pytest.raises(IndexError, match="there is no token"):
            tokenizer("lfm2").piece(token)


# ----------------------------------------------------------------------------- rules of the file


@pytest.mark.parametrize(
    ("name", "changes", "start", "end"),
    [
        ("lfm2", {}, [1], []),
        ("lfm2", {"add_bos_token": None}, [1], []),
        ("lfm2", {"add_bos_token": False}, [], []),
        ("lfm2", {"add_eos_token": True}, [1], [7]),
        ("smollm", {"add_bos_token": None}, [], []),
        ("gemma3", {"add_bos_token": None}, [2], []),
        ("gemma4", {"add_bos_token": False}, [2], [1]),
    ],
)
def test_what_is_put_around_a_text(
    name: str, changes: dict[str, Any], start: list[int], end: list[int]
) -> None:
    found = Tokenizer(metadata(name, **changes))
    inner = found.encode("hi", add_special=False)
    assert found.encode("hi") == start + inner + end
    assert found.encode("") == start + end


def test_tokens_that_end_a_generation() -> None:
    assert {name: sorted(tokenizer(name).vocabulary.ends) for name in NAMES} == {
        "lfm2": [2, 7],
        "smollm": [0, 2],
        "gpt-2": [2, 7],
        "qwen2": [2, 7],
        "gemma3": [1, 6],
        "llama": [1, 6],
        "gemma4": [1, 6],
    }


def test_the_longest_special_token_wins_over_an_earlier_one() -> None:
    tokens = ["<unk>", "aa", "aab", "ba", "a", "b"]
    found = Tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [2, 4, 4, 4, 1, 1],
            "tokenizer.ggml.scores": [0.0] * 6,
            "tokenizer.ggml.add_bos_token": False,
            "tokenizer.ggml.add_space_prefix": False,
        }
    )
    ids = found.encode("aaabaab")
    assert [tokens[i] for i in ids] == ["a", "aab", "aab"]
    assert [tokens[i] for i in found.encode("baaaba")] == ["ba", "aab", "a"]


def test_another_pre_tokeniser_can_be_named() -> None:
    strange = metadata("lfm2", pre="lfm9")
    assert Tokenizer(strange, "lfm2").encode("1234 a's") == tokenizer("lfm2").encode("1234 a's")


# ------------------------------------------------------------------------------------- the parts


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "I'll  go\n\n now 123", ["I", "'ll", " ", " go", "\n\n", " now", " 123"]),
        ("gpt-2", "I'LL é²!\u3000\u3000x", "I|'|LL| é|²|!|\u3000|\u3000|x".split("|")),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("lfm2", "I'LL  go\n\n now 12345!\n", "I|'LL| | go|\n\n| now| |123|45|!\n".split("|")),
        ("lfm2", "(x)\x85\x1cy", ["(x", ")", "\x85", "\x1cy"]),
        ("qwen2", "a12 ", ["a", "1", "2", " "]),
    ],
)
def test_pieces(pre: str, text: str, pieces: list[str]) -> None:
    assert PRE_TOKENISERS[pre].pieces(text) == pieces


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "lfm2", "qwen2"])
@given(text=st.text(max_size=80))
def test_pieces_are_the_whole_text(pre: str, text: str) -> None:
    pieces = PRE_TOKENISERS[pre].pieces(text)
    assert "".join(pieces) == text and all(pieces)


def test_kinds_of_characters() -> None:
    assert kinds("aé字१½Ⅷ\u3000\x85\u200b🙂") == (
        "a" + LETTER * 2 + NUMBER * 3 + SPACE * 2 + OTHER * 2
    )
    counts = dict.fromkeys((LETTER, NUMBER, SPACE, OTHER), 0)
    for start in range(128, 0x110000, 1 << 14):
        for kind in kinds("".join(map(chr, range(start, min(start + (1 << 14), 0x110000))))):
            counts[kind] += 1
    # Unicode 15.1, counted from llama.cpp's behaviour
    assert (counts[LETTER], counts[NUMBER], counts[SPACE]) == (136726 - 52, 1831 - 10, 19)


def test_of_equal_pairs_the_leftmost_is_merged_first() -> None:
    ranks = {("a", "a"): 1.0, ("aa", "a"): 0.5}
    assert merge(list("aaaaa"), lambda *pair: ranks.get(pair)) == ["aaa", "aa"]
    assert merge(list("abcab"), lambda left, right: None) == list("abcab")


@given(text=st.text("abc", max_size=12), seed=st.integers(0, 1000))
def test_merging_is_what_a_naive_search_gives(text: str, seed: int) -> None:
    drawn = random.Random(seed)
    made: dict[tuple[str, str], float] = {}
    known = ["a", "b", "c"]
    for rank in range(12):
        pair = drawn.choice(known), drawn.choice(known)
        made.setdefault(pair, rank)
        known.append("".join(pair))
    slow = list(text)
    while True:
        pairs = enumerate(itertools.pairwise(slow))
        ranked = [(made[pair], i) for i, pair in pairs if pair in made]
        if not ranked:
            break
        _, i = min(ranked)
        slow[i : i + 2] = [slow[i] + slow[i + 1]]
    assert merge(list(text), lambda *pair: made.get(pair)) == slow


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["a" * 30000, " " * 30000, "\n" * 30000, "é" * 10000, "<" * 30000])
def test_long_monotonous_texts_take_no_quadratic_time(name: str, text: str) -> None:
    started = time.process_time()
    assert tokenizer(name).encode(text)
    assert time.process_time() - started < 5


@given(st.text("ab 1.,<|im_end|>é\n漢", max_size=120), st.integers(0, 40), st.integers(1, 12))
def test_the_first_ids_are_those_of_the_whole_text(text: str, most: int, window: int) -> None:
    known = tokenizer("lfm2")
    with mock.patch("ferro.models.tokenizer.WINDOW", window):
        assert known.first(text, most) == known.encode(text, add_special=False)[:most]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_ids_of_every_kind_of_vocabulary(name: str) -> None:
    known = tokenizer(name)
    with mock.patch("ferro.models.tokenizer.WINDOW", 3):
        for text, _, _ in cases(name):
            assert known.first(text, 5) == known.encode(text, add_special=False)[:5]
