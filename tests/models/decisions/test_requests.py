"""Requests as they are read, and every error of the protocol's table that a request can have."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ferro.models.decisions import requests
from ferro.models.decisions.errors import DecisionError
from ferro.models.decisions.questions import Option, Type

YES_OR_NO = {"type": "noul", "instructions": "Is it?"}
URL = "data:image/png;base64," + base64.b64encode(b"an image of some kind").decode()
CLIP = "data:audio/wav;base64," + base64.b64encode(b"RIFF1234WAVEdata").decode()


def body(question: Any = None, state: Any = "s", **more: Any) -> dict[str, Any]:
    return {"state": state, "questions": {"q": question or YES_OR_NO}, **more}


def choice(**criteria: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": criteria}


def test_questions_and_options_come_in_the_order_of_the_request() -> None:
    asked = {"z": choice(b="B", a=None), "a": YES_OR_NO}
    found = requests.read({"state": None, "questions": asked})
    assert [question.id for question in found.questions] == ["z", "a"]
    assert found.questions[0].options == (Option("b", "B"), Option("a"))
    assert found.questions[1].options == (Option("false"), Option("true"))
    assert found.state is None


def test_levels_are_numbered() -> None:
    asked = {"type": "score", "instructions": ["x"], "criteria": ["low", None, {"a": 1}]}
    (found,) = requests.read(body(asked)).questions
    assert found.type is Type.SCORE and found.instructions == ["x"]
    assert found.options == (Option("0", "low"), Option("1"), Option("2", {"a": 1}))


@pytest.mark.parametrize(
    ("criteria", "descriptions"),
    [
        (None, (None, None)),
        ({}, (None, None)),
        ({"true": "T", "false": ""}, ("", "T")),
        ({"yes": "Y", "no": "N"}, ("N", "Y")),
        ({"yes": "Y", "true": None}, (None, None)),
    ],
)
def test_yes_and_no_stand_in_for_true_and_false(criteria: Any, descriptions: Any) -> None:
    (found,) = requests.read(body({**YES_OR_NO, "criteria": criteria})).questions
    assert tuple(option.description for option in found.options) == descriptions


def test_empty_instructions_and_a_single_choice_are_accepted() -> None:
    (found,) = requests.read(body({**choice(only=None), "instructions": ""})).questions
    assert found.instructions == "" and len(found.options) == 1


def test_media_come_from_files_then_images_then_messages() -> None:
    def url(data: bytes) -> str:
        return "data:image/png;base64," + base64.b64encode(data).decode()

    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": url(b"3")},
        {"type": "image_url", "image_url": {"url": url(b"4"), "detail": "low"}},
        {"type": "image_url"},
    ]
    state = {"a": 1, "messages": [{"role": "user", "content": parts}, {"content": "plain"}, 7]}
    found = requests.read(body(state=state, images=[url(b"2")], files=[url(b"1")], videos=[]))
    assert [medium.data for medium in found.media] == [b"1", b"2", b"3", b"4"]
    assert found.state["messages"][0]["content"] == [parts[0], parts[3]]
    assert found.state["messages"][1:] == state["messages"][1:] and found.state["a"] == 1
    assert not found.sounds


@pytest.mark.parametrize("name", ["data", "url"])
@pytest.mark.parametrize("start", ["", "data:audio/wav;base64,"])
def test_a_clip_is_known_by_its_first_bytes(name: str, start: str) -> None:
    part = {"type": "input_audio", "input_audio": {name: start + CLIP.split(",")[1]}}
    found = requests.read(body(state=[{"role": "user", "content": [part]}]))
    assert found.sounds and found.state == [{"role": "user", "content": []}]


def test_an_image_that_says_it_is_audio_is_an_image() -> None:
    assert not requests.read(body(files=[URL.replace("image/png", "audio/wav")])).sounds


ERRORS: dict[str, tuple[Any, str]] = {
    "an array": ([], "must be a JSON object"),
    "no state": ({"questions": {"q": YES_OR_NO}}, '"state" must be provided'),
    "no questions": ({"state": 1}, '"questions" must be a non-empty object'),
    "questions of another type": (
        {"state": 1, "questions": [1]},
        '"questions" must be a non-empty object',
    ),
    "no question": ({"state": 1, "questions": {}}, '"questions" must be a non-empty object'),
    "a question that is none": ({"state": 1, "questions": {"a.b": 3}}, "questions.a.b: must be an"),
    "no instructions": (body({"type": "noul"}), 'questions.q: "instructions" must be provided'),
    "null instructions": (body({"type": "noul", "instructions": None}), "must be provided"),
    "no type": (body({"instructions": "x"}), '"type" must be one of: choice, score, noul'),
    "another type": (body({**YES_OR_NO, "type": "bool"}), '"type" must be one of: choice, score'),
    "a type that is no word": (body({**YES_OR_NO, "type": ["noul"]}), '"type" must be one of'),
    "a choice of nothing": (body(choice()), '"criteria" must be a non-empty object'),
    "a choice without criteria": (
        body({"type": "choice", "instructions": "x"}),
        'questions.q: "criteria" must be a non-empty object',
    ),
    "one level": (
        body({"type": "score", "instructions": "x", "criteria": ["a"]}),
        '"criteria" must be an array of 2 to 10 levels',
    ),
    "eleven levels": (
        body({"type": "score", "instructions": "x", "criteria": ["a"] * 11}),
        '"criteria" must be an array of 2 to 10 levels',
    ),
    "levels that are no array": (
        body({"type": "score", "instructions": "x", "criteria": {"0": "a"}}),
        '"criteria" must be an array of 2 to 10 levels',
    ),
    "criteria of yes or no": (body({**YES_OR_NO, "criteria": ["x"]}), '"criteria" must be an obj'),
    "256 options": (
        body(choice(**{str(i): None for i in range(256)})),
        r"questions.q: too many options \(256\), this model supports at most 255",
    ),
    "files": (body(files="x"), '"files" must be an array'),
    "images": (body(images={"a": URL}), '"images" must be an array'),
    "an address": (body(images=["http://x/y.png"]), "must be data URLs"),
    "a number for an image": (body(images=[3]), "must be data URLs"),
    "two commas": (body(images=[URL + ","]), "one comma"),
    "no comma": (body(images=["data:image/png;base64"]), "one comma"),
    "a text": (body(files=["data:text/plain;base64,aa"]), "Invalid uri format: data:text/plain"),
    "no base64": (body(files=["data:image/png,aa"]), "must be base64 encoded"),
    "nine media": (body(files=[URL] * 9), "too many media files, the maximum is 8"),
    "nine media of two kinds": (body(files=[URL] * 8, images=[URL]), "the maximum is 8"),
    "videos": (body(videos=["x"]), '"videos" is not supported'),
    "a clip beside an image": (body(files=[URL, CLIP]), "one audio clip alone"),
    "two clips": (body(files=[CLIP, CLIP]), "one audio clip alone"),
    "a clip from elsewhere": (
        body(state=[{"content": [{"type": "input_audio", "input_audio": {"data": "https://x"}}]}]),
        "not an address",
    ),
    "a clip without data": (
        body(state=[{"content": [{"type": "input_audio", "input_audio": 3}]}]),
        '"input_audio" must have "data"',
    ),
    "an empty clip": (
        body(state=[{"content": [{"type": "input_audio", "input_audio": {"data": "!"}}]}]),
        "Invalid base64",
    ),
    "half a surrogate pair": (body(state=["\ud83d"]), "surrogate"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_is_wrong(name: str) -> None:
    given, words = ERRORS[name]
    with pytest.raises(DecisionError, match=words) as caught:
        requests.read(given)
    assert (caught.value.status, caught.value.kind) == (400, "invalid_request_error")
