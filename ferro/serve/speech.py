"""What a model says in a chat, told apart: reasoning, content, calls of tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ferro.serve.thinking import Thinking


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

    def __init__(self, splits: bool, opened: bool) -> None:
        """``splits``: reasoning is told from content; ``opened``: it was begun by the prompt."""
        self._thinking = Thinking(opened) if splits else None
        self.calls = 0

    @property
    def thinks(self) -> bool:
        """Whether what has come is reasoning to its end."""
        return self._thinking is not None and self._thinking.inside

    def push(self, text: str) -> Said:
        if self._thinking is None:
            return Said(content=text)
        return Said(*self._thinking.push(text))

    def finish(self) -> Said:
        return Said() if self._thinking is None else Said(*self._thinking.finish())


def total(parts: Sequence[Said]) -> Said:
    """All parts of a message."""
    found = Said()
    for part in parts:
        found += part
    return found
