"""Prompts: pieces, their tokens one by one, budgets and what is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferro.models.decisions import budgets, requests
from ferro.models.decisions.budgets import Budget
from ferro.models.decisions.deciding import Asked
from ferro.models.decisions.errors import DecisionError
from ferro.models.decisions.prompts import Prompts, option_texts, state_text
from ferro.models.decisions.requests import Request
from ferro.models.tokenizer import Tokenizer
from ferro.models.vocabulary import BadVocabulary
from tests.models import vocabularies
from tests.models.decisions.test_requests import CLIP, URL, YES_OR_NO, body, choice
from tests.models.decisions.test_values import JSON

TOKENIZER = vocabularies.tokenizer("lfm2")
PROMPTS = Prompts(TOKENIZER, 32768)
MASK = TOKENIZER.vocabulary.role("mask")


def ids(*pieces: str) -> tuple[int, ...]:
    """Pieces tokenised one by one."""
    return tuple(i for piece in pieces for i in TOKENIZER.encode(piece, add_special=False))


def rendered(given: Any) -> str:
    (found,) = PROMPTS.inputs(requests.read(given))
    return TOKENIZER.decode(found.tokens, special=True)


def texts(given: Any) -> list[str]:
    found = requests.read(given)
    return list(option_texts(found, found.questions[0]))


def test_a_prompt_of_the_protocol() -> None:
    assert rendered(body({"type": "noul", "instructions": "Is it a greeting?"}, "Hi")) == (
        "<|startoftext|><|reserved_7|>Hi<|reserved_8|>Is it a greeting?<|reserved_9|><|mask|>"
        " false: no, the statement does not hold<|reserved_10|><|reserved_9|><|mask|> true: yes,"
        " the statement holds<|reserved_10|><|reserved_11|>"
    )


def test_pieces_are_tokenised_one_by_one() -> None:
    given = body(choice(ab="cd", ef=None), "the ")
    (found,) = PROMPTS.inputs(requests.read(given))
    begin, middle = "<|startoftext|><|reserved_7|>", ("<|reserved_9|><|mask|>", "<|reserved_10|>")
    expected = ids(begin, "the ", "<|reserved_8|>Which?", middle[0], " ab: cd", middle[1])
    expected += ids(middle[0], " ef", middle[1], "<|reserved_11|>")
    assert found.tokens == expected
    assert found.wanted == tuple(i for i, token in enumerate(expected) if token == MASK)
    assert found.kind == 0


def test_each_question_has_a_prompt_of_its_own() -> None:
    given = {"state": "s", "questions": {"a": YES_OR_NO, "b": choice(x=1), "c": YES_OR_NO}}
    a, b, c = PROMPTS.inputs(requests.read(given))
    assert a == c and (a.kind, b.kind) == (2, 0)
    assert PROMPTS.inputs(requests.read(body(choice(x=1)))) == [b]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        ({"b": 1, "a": 2.5}, '{"b": 1, "a": 2.5}'),
        ("<|mask|><|im_end|> <<d1omni:x", "<¦mask¦><¦im_end¦> <<d1omni x"),
        ({"<|mask|>": "<|a|>"}, '{"<¦mask¦>": "<¦a¦>"}'),
    ],
)
def test_the_state_as_text(state: Any, text: str) -> None:
    assert state_text(requests.read(body(state=state))) == text


def test_an_empty_state_beside_a_clip() -> None:
    assert state_text(requests.read(body(state=None, files=[CLIP]))) == "{}"
    assert state_text(requests.read(body(state=None, files=[URL]))) == ""


LEVELS = {"type": "score", "instructions": "How?", "criteria": ["low", None, {"a": 1.0}, ""]}
DESCRIBED = {**YES_OR_NO, "criteria": {"true": "T", "false": ""}}
NO, YES = "false: no, the statement does not hold", "true: yes, the statement holds"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (body(choice(a="A", b=None, c="", d=[1])), ["a: A", "b", "c", "d: [1]"]),
        (
            body(choice(a="A", b=None), files=[CLIP]),
            ["option_000: A", "option_001: b"],
        ),
        (body(LEVELS), ["level 0: low", "level 1: null", 'level 2: {"a": 1}', "level 3: "]),
        (body(YES_OR_NO), [NO, YES]),
        (body(YES_OR_NO, files=[URL]), ["false: no", "true: yes"]),
        (body(DESCRIBED, files=[URL]), [NO, "true: T"]),
        (body(DESCRIBED, files=[CLIP]), ["false: no", "true: yes"]),
        (body(DESCRIBED), [NO, "true: T"]),
        (body(choice(**{"<|mask|>": "<|x|>"})), ["<¦mask¦>: <¦x¦>"]),
    ],
)
def test_options_as_text(given: Any, expected: list[str]) -> None:
    assert texts(given) == expected


# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "whole", "question", "option"),
    [
        (1, 16384, 96, 93),
        (2, 16384, 96, 45),
        (4, 16384, 128, 29),
        (10, 16384, 272, 24),
        (255, 16384, 6152, 21),
        (255, 896, 448, 2),
        (20, 896, 448, 19),
    ],
)
def test_check_values_of_budgets(options: int, whole: int, question: int, option: int) -> None:
    assert budgets.budget(options, whole) == Budget(whole, question, option)


def test_what_media_leave() -> None:
    assert budgets.whole() == 16384 == budgets.whole(sounds=True)
    assert budgets.whole(256) == 896 and budgets.whole(16000) == 384
    assert budgets.whole(500, sounds=True) == 15360
    assert budgets.whole(2000, sounds=True) == 14384
    assert budgets.whole(16384 - 64) == 64
    with pytest.raises(DecisionError, match="16321 positions of 16384"):
        budgets.whole(16384 - 63)


def test_options_and_question_are_cut_on_the_right() -> None:
    long = "x y " * 300
    (found,) = PROMPTS.inputs(requests.read(body({**choice(a=long, b="B"), "instructions": long})))
    tokens = found.tokens
    first, second = found.wanted
    question = ids("<|reserved_8|>" + long)[:96]
    start = tokens.index(question[0])
    assert tokens[start : start + 96] == question and tokens[start + 96] == ids("<|reserved_9|>")[0]
    assert tokens[first + 1 : second - 2] == ids(" a: " + long)[:45]
    assert tokens[second + 1 :] == ids(" b: B", "<|reserved_10|>", "<|reserved_11|>")


def test_a_long_state_is_cut_to_the_room_that_is_left() -> None:
    long = "the quick brown fox. " * 9000
    (found,) = PROMPTS.inputs(requests.read(body(state=long)))
    assert len(found.tokens) == 16384
    asked = ids("<|reserved_8|>Is it?", "<|reserved_9|><|mask|>", f" {NO}", "<|reserved_10|>")
    asked += ids("<|reserved_9|><|mask|>", f" {YES}", "<|reserved_10|>", "<|reserved_11|>")
    assert found.tokens[-len(asked) :] == asked
    assert found.tokens[2 : -len(asked)] == ids(long)[: 16384 - 2 - len(asked)]


def test_255_long_options_fit() -> None:
    asked = choice(**{f"k{i}": "some long description " * 20 for i in range(255)})
    (found,) = PROMPTS.inputs(requests.read(body(asked, state="s " * 20000)))
    assert len(found.tokens) == 16384 and len(found.wanted) == 255


def test_options_that_media_leave_no_room_for_are_told_of() -> None:
    asked = choice(**{f"k{i}": "some long description" for i in range(255)})
    given = Request("s", requests.read(body(asked)).questions)
    with pytest.raises(DecisionError, match="options do not fit") as caught:
        PROMPTS.inputs(given, positions=1000)
    assert caught.value.status == 400


def test_a_prompt_beyond_the_context_has_a_type_of_its_own() -> None:
    with pytest.raises(DecisionError, match="the context holds 20") as caught:
        Prompts(TOKENIZER, 20).inputs(requests.read(body()))
    assert (caught.value.status, caught.value.kind) == (400, "exceed_context_size_error")


def test_a_control_token_of_another_form_is_told_of() -> None:
    changes = {"tokens": list(vocabularies.metadata("lfm2")["tokenizer.ggml.tokens"])}
    changes["tokens"][14], changes["token_type"] = "[M]", [3] * 15 + [1] * 497
    changes["mask_token_id"] = 14
    odd = Tokenizer(vocabularies.metadata("lfm2", **changes))
    with pytest.raises(DecisionError, match="unexpected layout") as caught:
        Prompts(odd, 4096).inputs(requests.read(body(state="[M]" * 3)))
    assert (caught.value.status, caught.value.kind) == (500, "server_error")


def test_a_vocabulary_without_a_mask_is_refused() -> None:
    with pytest.raises(BadVocabulary, match="mask"):
        Prompts(Tokenizer(vocabularies.metadata("lfm2", mask_token_id=None)), 64)


@pytest.mark.parametrize(("files", "word"), [([URL], "image"), ([CLIP], "audio")])
def test_media_need_a_projector(files: list[str], word: str) -> None:
    with pytest.raises(DecisionError, match=f"does not support {word} input") as caught:
        Asked.of(requests.read(body(files=files)), PROMPTS)
    assert (caught.value.status, caught.value.kind) == (501, "not_supported_error")


def test_a_text_without_an_end_of_a_word_is_refused_and_one_with_ends_is_cut() -> None:
    with pytest.raises(DecisionError, match="no place to cut") as caught:
        PROMPTS.inputs(requests.read(body(state=" " * 2_000_000)))
    assert caught.value.status == 400
    (found,) = PROMPTS.inputs(requests.read(body(state="word and " * 1_200_000)))
    assert len(found.tokens) == 16384


# --- properties ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(JSON, JSON.filter(lambda x: x is not None), st.dictionaries(st.text(
    st.characters(exclude_categories=["Cs"])), JSON, min_size=1, max_size=5))  # fmt: skip
def test_any_state_and_options_make_a_prompt(state: Any, asked: Any, criteria: Any) -> None:
    question = {"type": "choice", "instructions": asked, "criteria": criteria}
    given = {"state": state, "questions": {"x": question, "y": YES_OR_NO}}
    found = PROMPTS.inputs(requests.read(given))
    assert [len(each.wanted) for each in found] == [len(criteria), 2]
    assert all(len(each.tokens) <= 16384 for each in found)
    turned = {**question, "criteria": dict(reversed(criteria.items()))}
    both = [texts({"state": state, "questions": {"x": each}}) for each in (question, turned)]
    assert both[0] == both[1][::-1]
