"""Tools, choices among them, and replies of a given form."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from ferro.serve import forms
from tests.serve.conftest import Connect
from tests.serve.test_chat import END, USER, asked, ids, joined, streamed

CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Rome", "Oslo"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'

SCHEMAS: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"enum": ["a", "b", 3, None]},
    {"type": "integer", "minimum": -5, "maximum": 5},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "^[ab]{2,4}$"},
    {"type": "string", "format": "date"},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    {"anyOf": [{"const": 1}, {"type": "null"}]},
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 2]}},
     "required": ["a", "b"], "additionalProperties": False},
    {"$defs": {"x": {"enum": ["x", "y"]}}, "type": "array", "items": {"$ref": "#/$defs/x"},
     "minItems": 1, "maxItems": 2},
]  # fmt: skip


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}


def refused(client: TestClient, **fields: Any) -> str:
    reply = client.post(CHAT, json={"messages": USER, "max_tokens": 4, **fields})
    assert reply.status_code == 400, reply.text
    message: str = reply.json()["error"]["message"]
    return message


def test_a_call_becomes_one(connect: Connect) -> None:
    choice = asked(connect([*ids("Well. " + CALL), END]), tools=[WEATHER])["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == "Well. " and choice["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert call["id"].startswith("call_")


def test_a_call_alone_has_no_content(connect: Connect) -> None:
    message = asked(connect([*ids(CALL), END]), tools=[WEATHER])["choices"][0]["message"]
    assert message["content"] is None and len(message["tool_calls"]) == 1


def test_calls_are_streamed_one_by_one(connect: Connect) -> None:
    chunks = streamed(connect([*ids(CALL + CALL), END], context=512), tools=[WEATHER])
    deltas = [chunk["choices"][0]["delta"].get("tool_calls", []) for chunk in chunks]
    assert [call["index"] for delta in deltas for call in delta] == [0, 1]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_text_that_is_no_call_is_content(connect: Connect) -> None:
    text = "<tool_call>{nothing</tool_call> [a]"
    choice = asked(connect([*ids(text), END]), tools=[WEATHER])["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
def test_without_tools_nothing_is_a_call(connect: Connect, fields: Any) -> None:
    message = asked(connect([*ids(CALL), END]), **fields)["choices"][0]["message"]
    assert message["content"] == CALL and "tool_calls" not in message


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"weather", "other"}),
        ({"type": "function", "function": {"name": "weather"}}, {"weather"}),
    ],
)
def test_a_call_that_is_required_is_made(client: TestClient, choice: Any, names: set[str]) -> None:
    for seed in range(3):
        reply = asked(client, tools=[WEATHER, OTHER], tool_choice=choice, max_tokens=400,
                      parallel_tool_calls=False, seed=seed, temperature=1)  # fmt: skip
        found = reply["choices"][0]
        if found["finish_reason"] == "length":
            continue
        (call,) = found["message"]["tool_calls"]
        assert call["function"]["name"] in names
        if call["function"]["name"] == "weather":
            arguments = json.loads(call["function"]["arguments"])
            jsonschema.validate(arguments, WEATHER["function"]["parameters"])


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_a_reply_has_the_schema_that_was_asked_for(client: TestClient, schema: Any) -> None:
    for seed in range(2):
        fields = {"response_format": schema_format(schema), "max_tokens": 300, "seed": seed}
        choice = asked(client, temperature=1, **fields)["choices"][0]
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)


def test_a_stream_has_the_schema_too(client: TestClient) -> None:
    chunks = streamed(client, response_format=schema_format(SCHEMAS[8]), max_tokens=300)
    jsonschema.validate(json.loads(joined(chunks)), SCHEMAS[8])


def test_a_json_object(client: TestClient) -> None:
    fields = {"response_format": {"type": "json_object"}, "max_tokens": 400, "seed": 2}
    choice = asked(client, **fields)["choices"][0]
    assert choice["message"]["content"].startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "cannot be enforced"),
        ({"not": {"type": "string"}}, '"not"'),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"if": {}, "then": {}}, '"if"'),
        ({"type": "strin"}, "strin"),
        ({"$ref": "http://x/y"}, "http://x/y"),
        ({"type": "object", "x-guidance": {"lenient": True}}, "x-guidance"),
        ({"properties": {"a": {"x-guidance": {}}}}, "x-guidance"),
        ("text", "object"),
        ([], "object"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(
    client: TestClient, schema: Any, named: str
) -> None:
    assert named in refused(client, response_format=schema_format(schema))


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "xml"}},
        {"response_format": {}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_object"}, "ignore_eos": True},
        {"response_format": {"type": "json_object"}, "tools": [OTHER], "tool_choice": "required"},
        {"tool_choice": "required"},
        {"tools": [OTHER], "tool_choice": "sometimes"},
        {"tools": [OTHER], "tool_choice": {"type": "function", "function": {"name": "none"}}},
    ],
)
def test_forms_that_make_no_sense(client: TestClient, fields: Any) -> None:
    assert refused(client, **fields)


def test_a_conversation_with_calls_and_their_results_goes_round(client: TestClient) -> None:
    for arguments in ('{"city": "Rome"}', {"city": "Rome"}):
        function = {"name": "weather", "arguments": arguments}
        calls = [{"id": "1", "type": "function", "function": function}]
        messages = [
            *USER,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        ]
        assert asked(client, messages=messages, tools=[WEATHER], max_tokens=2)


def test_control_tokens_that_mark_parts_are_read() -> None:
    ids = {"<think>": 4, "<|tool_call_start|>": 5, "<|im_end|>": 7}
    assert forms.shown(ids, tools=True) == {4, 5} and forms.shown(ids, tools=False) == {4}
