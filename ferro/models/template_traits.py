"""What a chat template can take, found out by showing it conversations and watching what it reads.

The conversations and the conclusions are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ferro.models.templating import Template, TemplateFailed

MARKER = "STRING_MARKER"


@dataclass(frozen=True)
class Traits:
    """``strings``, ``parts``: forms of a message's content; ``system``: messages of that role;
    ``objects``: arguments of tool calls as objects, not as JSON texts."""

    strings: bool
    parts: bool
    system: bool
    objects: bool


class Watched:
    """Marks a value that remembers whether it was looked into."""

    touched = False


class Text(Watched, str):
    """A text that notices when it is taken for an array."""

    def __iter__(self) -> Iterator[str]:
        self.touched = True
        return super().__iter__()

    def __getitem__(self, index: Any) -> str:
        self.touched |= isinstance(index, int)
        return super().__getitem__(index)


class Array(Watched, list[Any]):
    """An array that notices when its elements are asked for."""

    def __iter__(self) -> Iterator[Any]:
        self.touched = True
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        self.touched = True
        return super().__getitem__(index)


class Object(Watched, dict[str, Any]):
    """An object that notices when one of its values is asked for."""

    def __getitem__(self, key: str) -> Any:
        self.touched = True
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.touched = True
        return super().get(key, default)

    def items(self) -> Any:
        self.touched = True
        return super().items()

    def values(self) -> Any:
        self.touched = True
        return super().values()


class Message(dict[str, Any]):
    """A message that notices when its content is read."""

    read = False

    def __getitem__(self, key: str) -> Any:
        self.read |= key == "content"
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read |= key == "content"
        return super().get(key, default)


def plain(value: Any) -> Any:
    """``value`` as ordinary objects and arrays, for JSON. Counts as a look into objects only."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in list.__iter__(value)]
    return value


def traits(source: str) -> Traits:
    """What the template can take. Raises BadTemplate."""
    template = Template(source, plain)
    text, array, message, arguments = Text(MARKER), Array(), Message(), Object(arg="value")
    message.update(role="system", content="System message")
    shown = _show(template, [{"role": "user", "content": text}])
    empty = _show(template, [{"role": "user", "content": array}])
    _show(template, [message, {"role": "user", "content": "User message"}])
    called = _show(template, _tool_call(arguments), tools=[_TOOL])
    strings = shown is not None and not (text.touched and MARKER not in shown)
    parts = text.touched or (empty is not None and array.touched)
    return Traits(strings, parts, message.read, called is not None and arguments.touched)


def _show(template: Template, messages: list[Any], tools: list[Any] | None = None) -> str | None:
    given = {"messages": messages, "tools": tools or [], "bos_token": "", "eos_token": ""}
    try:
        return template.render({**given, "add_generation_prompt": True})
    except TemplateFailed:
        return None


def _tool_call(arguments: Object) -> list[dict[str, Any]]:
    call = {"id": "call1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "User message"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Tool response", "tool_call_id": "call1"},
        {"role": "assistant", "content": "The tool response was 'tool response'"},
        {"role": "user", "content": "User message"},
    ]


_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "Tool description",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "Argument description"}},
            "required": ["arg"],
        },
    },
}
