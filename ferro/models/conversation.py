"""Conversations as OpenAI's chat completions have them, checked and in one form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ferro.models.renderer import TemplateError

Message = dict[str, Any]
Content = str | Sequence[Mapping[str, Any]]

TEXTS = ("reasoning_content", "name", "tool_call_id")


class BadConversation(TemplateError):
    """Messages or tools of another form than chat completions have."""


@dataclass(frozen=True)
class Conversation:
    """What a prompt is made of. An open last assistant message is continued; ``variables`` are
    further ones for the template."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    add_generation_prompt: bool = True
    variables: Mapping[str, Any] = field(default_factory=dict)

    def checked_messages(self) -> list[Message]:
        """The messages with the keys that templates know: role, content (a text or a list of
        parts), reasoning_content, name, tool_call_id, tool_calls. Raises BadConversation."""
        return [_message(f"message {i}", message) for i, message in enumerate(self.messages)]

    def checked_tools(self) -> list[Message]:
        """The tools, each with name, description and parameters. Raises BadConversation."""
        return [_tool(f"tool {i}", tool) for i, tool in enumerate(self.tools)]


def joined(content: Content) -> str:
    """The texts of content parts, a line each; a marker of a medium has no line of its own."""
    if isinstance(content, str):
        return content
    text, after_marker = "", False
    for part in content:
        marker = part["type"] == "media_marker"
        if text and not marker and not after_marker:
            text += "\n"
        text, after_marker = text + part["text"], marker
    return text


def _message(what: str, message: Any) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise BadConversation(f"{what} has no role")
    if "content" not in message and "tool_calls" not in message:
        raise BadConversation(f"{what} has neither content nor tool calls")
    checked: Message = {"role": message["role"], "content": _content(what, message.get("content"))}
    for key in TEXTS:
        value = message.get(key)
        if not isinstance(value, str | None):
            raise BadConversation(f"{what}: {key} must be a text")
        if value:
            checked[key] = value
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise BadConversation(f"{what}: tool_calls must be a list")
    if calls:
        checked["tool_calls"] = [_call(what, call) for call in calls]
    return checked


def _content(what: str, content: Any) -> Content:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(map(_is_part, content)):
        raise BadConversation(f"{what}: content must be a text or a list of parts with their text")
    return [{"type": part["type"], "text": part["text"]} for part in content]


def _is_part(part: Any) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
        return False
    return part.get("type") in ("text", "media_marker")


def _function(what: str, given: Any) -> Mapping[str, Any]:
    """The function of a tool or of a call."""
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping) or given.get("type") != "function":
        raise BadConversation(f'{what} must have type "function" and a function')
    if not isinstance(function.get("name"), str):
        raise BadConversation(f"{what}: the function has no name")
    return function


def _call(what: str, call: Any) -> Message:
    """A tool call with its arguments as a JSON text, the form in which they travel."""
    function = _function(f"{what}: a tool call", call)
    if "arguments" not in function:
        raise BadConversation(f"{what}: a tool call has no arguments")
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    found: Message = {
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
    return {**found, "id": str(call["id"])} if call.get("id") else found


def _tool(what: str, tool: Any) -> Message:
    function = _function(what, tool)
    described = {
        "name": function["name"],
        "description": function.get("description", ""),
        "parameters": function.get("parameters", {}),
    }
    return {"type": "function", "function": described}
