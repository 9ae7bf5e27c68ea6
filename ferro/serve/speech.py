"""What a model says in a chat, told apart: reasoning, content, calls of tools."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ferro.serve.thinking import Thinking
from ferro.serve.tool_calls import ToolCalls


@dataclass(frozen=True)
class Said:
    """A part of a message."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)

    def __add__(self, other: Said) -> Said:
        return Said(
            self.reasoning + other.reasoning,
            self.content + other.content,
            self.calls + other.calls,
        )

    def message(self) -> dict[str, Any]:
        """The assistant's message."""
        found: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls and not self.content:
            found["content"] = None
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.calls:
            found["tool_calls"] = list(self.calls)
        return found

    def delta(self, first_call: int = 0) -> dict[str, Any]:
        """What a chunk adds to a message that has ``first_call`` calls."""
        found: dict[str, Any] = {}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.content:
            found["content"] = self.content
        if self.calls:
            found["tool_calls"] = [
                {"index": first_call + i, **call} for i, call in enumerate(self.calls)
            ]
        return found


class Listener:
    """Takes the text of one choice apart while it comes."""

    def __init__(self, splits: bool, opened: bool, tools: Collection[str] = ()) -> None:
        """``splits``: reasoning is told from content; ``opened``: it was begun by the prompt;
        ``tools`` are the names of those that may be called."""
        self._thinking = Thinking(opened) if splits else None
        self._tool_calls = ToolCalls(tools) if tools else None
        self.calls = 0

    @property
    def thinks(self) -> bool:
        """Whether what has come is reasoning to its end."""
        return self._thinking is not None and self._thinking.inside

    def push(self, text: str) -> Said:
        reasoning, answer = ("", text) if self._thinking is None else self._thinking.push(text)
        return self._heard(reasoning, answer)

    def finish(self) -> Said:
        """What was held back, now that no more comes."""
        reasoning, answer = ("", "") if self._thinking is None else self._thinking.finish()
        said = self._heard(reasoning, answer)
        if self._tool_calls is not None:
            content, calls = self._tool_calls.finish()
            said += Said("", content, tuple(calls))
        return said

    def _heard(self, reasoning: str, answer: str) -> Said:
        if self._tool_calls is None:
            return Said(reasoning, answer)
        content, calls = self._tool_calls.push(answer)
        return Said(reasoning, content, tuple(calls))


def total(parts: Sequence[Said]) -> Said:
    """All parts of a message."""
    found = Said()
    for part in parts:
        found += part
    return found
