"""Inputs out of texts and token ids."""

from __future__ import annotations

from typing import Any

import pytest

from ferro.models import tasks
from ferro.models.loaded import BadOption
from ferro.models.packing import Input
from ferro.models.sequences import sequence
from ferro.models.tasks import NoSuchTask

DOCUMENT, QUERY = (tasks.task("gemma-embedding2", name) for name in ("document", "query"))


def encode(text: str) -> list[int]:
    return [2, *text.encode(), 1]


def test_a_text_is_encoded_once_with_what_is_in_front_of_it() -> None:
    found = sequence(encode, "b", DOCUMENT, "a")
    assert found == Input((2, *b"title: a | text: b", 1))
    assert sequence(encode, "") == Input((2, 1))


def test_token_ids_are_taken_as_they_are() -> None:
    assert sequence(encode, [7, 8]) == Input((7, 8))


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"given": [7], "task": QUERY}, BadOption),
        ({"given": [7], "title": "a"}, BadOption),
        ({"given": "b", "task": QUERY, "title": "a"}, NoSuchTask),
        ({"given": "b", "title": "a"}, NoSuchTask),
    ],
)
def test_what_has_no_place_is_refused(how: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        sequence(encode, **how)
