"""JSON as text of a prompt, and what is replaced in it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.decisions import values
from ferro.models.decisions.errors import DecisionError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ([], "[]"),
        ({}, "{}"),
        ({"b": 1, "a": [1, {"c": None}]}, '{"b": 1, "a": [1, {"c": null}]}'),
        (1.0, "1"),
        (0.1, "0.1"),
        (3.14159265, "3.14159"),
        (1e20, "1e+20"),
        (-0.0, "-0"),
        (1e-7, "1e-07"),
        (123456789.0, "1.23457e+08"),
        (123456789, "123456789"),
        (-(1 << 63), "-9223372036854775808"),
        ((1 << 64) - 1, "18446744073709551615"),
        (10**20, "1e+20"),
        ('"\\/\b\f\n\r\t\x01\x1f\x7f', '"\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f"'),
        ("é<&'漢😀", '"é<&\'漢😀"'),
    ],
)
def test_json_is_written_as_llama_cpp_does(value: Any, text: str) -> None:
    assert values.json_text(value) == text


@given(JSON)
def test_any_json_is_written_and_means_the_same_but_for_digits(value: Any) -> None:
    values.check(value)
    again = json.loads(values.json_text(value))
    assert same(again, value)
    assert "\n" not in values.json_text(value)


def same(a: Any, b: Any) -> bool:
    if isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-5)
    return type(a) is type(b) and bool(a == b)


@given(JSON)
def test_nothing_escaped_can_be_read_as_a_control_token(value: Any) -> None:
    marked = {"<|mask|>": value, "k": ["<|im_end|><|a_1|>", value]}
    text = values.json_text(values.escaped(marked))
    assert "<|mask|>" not in text and "<|im_end|>" not in text
    assert text.startswith('{"<¦mask¦>": ')


def test_the_separator_of_pieces_is_replaced_in_strings_only() -> None:
    found = values.escaped({"<<d1omni:k": ["a<<d1omni:b", "<|x y|>", 1.5, None]})
    assert found == {"<<d1omni:k": ["a<<d1omni b", "<|x y|>", 1.5, None]}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("\ud800", "surrogate"),
        ({"\udc00": 1}, "surrogate"),
        (math.inf, "no JSON"),
        ([math.nan], "no JSON"),
        (deep(65), "too deep"),
        (deep(5000), "too deep"),
        ({1, 2}, "no JSON"),
    ],
)
def test_what_is_no_json_is_refused(value: Any, words: str) -> None:
    with pytest.raises(DecisionError, match=words) as caught:
        values.check(value)
    assert caught.value.status == 400 and caught.value.exit_code == 2


def test_a_number_that_no_double_holds_is_refused() -> None:
    with pytest.raises(DecisionError, match="too large"):
        values.json_text([10**400])
