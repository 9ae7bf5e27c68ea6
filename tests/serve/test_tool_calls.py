"""Calls of tools in texts, whole and cut at every place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ferro.serve.tool_calls import ToolCalls, parsed

START, END = "<|tool_call_start|>", "<|tool_call_end|>"
NAMES = ("weather", "api.get")

# text, content, (name, arguments) of each call
CORPUS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ("Hello [world] (a) 'b'", "Hello [world] (a) 'b'", []),
    (f"{START}[weather(city='Rome')]{END}", "", [("weather", {"city": "Rome"})]),
    (f"Well.{START}[weather(city='R', n=-2.5)]{END}", "Well.",
     [("weather", {"city": "R", "n": -2.5})]),
    (f"{START}[a(x=True, y=null), b(), c.d(z=[1, {{'k': \"v\"}}])]{END}", "",
     [("a", {"x": True, "y": None}), ("b", {}), ("c.d", {"z": [1, {"k": "v"}]})]),
    (f"{START}[f(t='it\\'s \"so\" [x](y) é🙂')]{END}", "",
     [("f", {"t": "it's \"so\" [x](y) é🙂"})]),
    (f"{START}[f(t='line\\nline')]{END}", "", [("f", {"t": "line\nline"})]),
    (f'{START}[{{"name": "f", "arguments": {{"a": [1]}}}}]{END}', "", [("f", {"a": [1]})]),
    ('<tool_call>\n{"name": "f", "arguments": {"a": true}}\n</tool_call>', "",
     [("f", {"a": True})]),
    ('<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>'
     '{"name": "g", "arguments": {"x": "<b>"}}</tool_call>', "", [("f", {}), ("g", {"x": "<b>"})]),
    (f"{START}[f(a=1)]{END}After", "After", [("f", {"a": 1})]),
    ("[weather(city='Rome')]", "", [("weather", {"city": "Rome"})]),
    ("[api.get(x='a]b')] so", " so", [("api.get", {"x": "a]b"})]),
    ("[unknown(city='Rome')]", "[unknown(city='Rome')]", []),
    ("see [weather(city='Rome')]", "see [weather(city='Rome')]", []),
    (f"{START}[f(a=1){END}x", f"{START}[f(a=1){END}x", []),
    (f"{START}[f(1)]{END}", f"{START}[f(1)]{END}", []),
    (f"{START}[f(a=g())]{END}", f"{START}[f(a=g())]{END}", []),
    (f"{START}[f(a=1e999)]{END}", f"{START}[f(a=1e999)]{END}", []),
    (f"{START}[f(a=1)]", "", [("f", {"a": 1})]),
    (f"{START}[f(a=", f"{START}[f(a=", []),
    ("[weather(city='R", "[weather(city='R", []),
    ("<tool_call>{bad}</tool_call>", "<tool_call>{bad}</tool_call>", []),
    ("<tool_cal", "<tool_cal", []),
    ("a < b <too", "a < b <too", []),
]  # fmt: skip


def read(pieces: list[str]) -> tuple[str, list[tuple[str, Any]]]:
    made = ToolCalls(NAMES)
    parts = [*map(made.push, pieces), made.finish()]
    calls = [call["function"] for _, found in parts for call in found]
    named = [(call["name"], json.loads(call["arguments"])) for call in calls]
    return "".join(content for content, _ in parts), named


@pytest.mark.parametrize(("text", "content", "calls"), CORPUS)
def test_texts_are_told_apart_wherever_they_are_cut(
    text: str, content: str, calls: list[tuple[str, Any]]
) -> None:
    assert read([text]) == (content, calls)
    assert read(list(text)) == (content, calls)
    for at in range(len(text)):
        assert read([text[:at], text[at:]]) == (content, calls), at


def test_every_call_has_an_identity_of_its_own() -> None:
    first, second = parsed("[f(), f()]")
    assert first["id"] != second["id"] and first["type"] == "function"


def test_depth_is_no_danger() -> None:
    assert parsed("[f(a=" + "[" * 5000 + "]" * 5000 + ")]") == []
    assert parsed("[" * 100_000) == []


def test_content_is_not_held_back_longer_than_it_must_be() -> None:
    made = ToolCalls(NAMES)
    assert made.push("Hello <") == ("Hello ", [])
    assert made.push("b>") == ("<b>", [])
