"""Calls of tools in what a model says: LFM2's Python-like lists, and JSON as Hermes has it.

A call is told when it is complete. What begins like one and cannot be read is text: nothing that a
model says is an error.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Collection
from typing import Any

from ferro.serve.thinking import overlap

Call = dict[str, Any]

MARKS = {
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<tool_call>": "</tool_call>",
}
LONGEST = 100_000  # characters of calls that are waited for
NAME = re.compile(r"[A-Za-z_][\w.-]*")
CONSTANTS = {"true": True, "false": False, "null": None}


class ToolCalls:
    """Splits a text that comes in pieces into content and calls.

    Calls stand between the marks of ``MARKS``, or in a list at the beginning of the text whose
    first name is one of ``names``.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._bare = tuple(f"[{name}(" for name in names)
        self._held, self._mark = "", ""
        self._begun = self._trim = False

    def push(self, text: str) -> tuple[str, list[Call]]:
        """The content and the calls that are known after ``text`` has come."""
        self._held += text
        content, calls = "", list[Call]()
        while True:
            if self._trim:
                # lines between calls are no content
                self._held = self._held.lstrip("\n")
                self._trim = not self._held
            if not self._mark and not self._open():
                shown = self._show()
                return content + shown, calls
            before, found = self._close(final=False)
            content += before
            if found is None:
                return content, calls
            calls += found

    def finish(self) -> tuple[str, list[Call]]:
        """What was held back, now that no more comes: a call that has no end mark is one if it can
        be read."""
        if not self._mark:
            held, self._held = self._held, ""
            return held, []
        content, calls = self._close(final=True)
        held, self._held = self._held, ""
        return content + held, calls or []

    def _open(self) -> bool:
        """Find the beginning of calls; what is before it stays in front of what is held."""
        if not self._begun:
            bare = self._held.lstrip()
            found = next((start for start in self._bare if bare.startswith(start)), None)
            if found is not None:
                self._held, self._mark, self._begun = bare, "[", True
                return True
        starts = [(self._held.find(mark), mark) for mark in MARKS if mark in self._held]
        if starts:
            self._mark, self._begun = min(starts)[1], True
        return bool(starts)

    def _show(self) -> str:
        """The text that cannot become the beginning of a call any more."""
        bare = self._held.lstrip()
        if not self._begun and any(start.startswith(bare) for start in (*self._bare, *MARKS)):
            return ""
        self._begun = self._begun or bool(bare)
        kept = max(overlap(self._held, mark) for mark in MARKS)
        shown, self._held = self._held[: len(self._held) - kept], self._held[-kept:] if kept else ""
        return shown

    def _close(self, final: bool) -> tuple[str, list[Call] | None]:
        """Content before the calls, and the calls; None while they are not complete."""
        mark = self._mark
        if mark == "[":
            before, inner, rest = "", *_balanced(self._held)
            complete = bool(inner)
        else:
            before, _, after = self._held.partition(mark)
            inner, end, rest = after.partition(MARKS[mark])
            complete = bool(end) or final
        whole = len(self._held)
        if not complete and not final and whole < LONGEST:
            self._held = self._held[len(before) :]
            return before, None
        self._mark = ""
        calls = parsed(inner) if complete else []
        if calls:
            self._held, self._trim = rest, True
            return before if before.strip() else "", calls
        # no calls: the mark and what follows are text
        text, self._held = self._held[: whole - len(rest)], rest
        return text, []


def parsed(text: str) -> list[Call]:
    """The calls that a text consists of, or nothing if it is no calls."""
    text = text.strip()
    try:
        found = _from_json(text)
        if not found:
            found = _from_python(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return []
    return [call(name, arguments) for name, arguments in found]


def call(name: str, arguments: Any) -> Call:
    """A call in the protocol's form."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": name, "arguments": text}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def _from_json(text: str) -> list[tuple[str, Any]]:
    """``{"name": ..., "arguments": {...}}``, or a list of such objects."""
    if text[:1] not in "{[":
        return []
    try:
        given = json.loads(text)
    except ValueError:
        return []
    listed = given if isinstance(given, list) else [given]
    return [_json_call(each) for each in listed]


def _json_call(given: Any) -> tuple[str, Any]:
    if not isinstance(given, dict):
        raise ValueError("no call")
    given = given.get("function", given)
    name = given["name"] if isinstance(given, dict) and "name" in given else None
    arguments = given.get("arguments", given.get("parameters", {})) if name else None
    if not isinstance(name, str) or not isinstance(arguments, dict | str):
        raise ValueError("no call")
    return name, arguments


def _from_python(text: str) -> list[tuple[str, Any]]:
    """``[f(a='x', b=[1, true]), g.h()]``, or one call without brackets."""
    tree = ast.parse(text, mode="eval").body
    listed = tree.elts if isinstance(tree, ast.List) else [tree]
    found = []
    for node in listed:
        if not isinstance(node, ast.Call) or node.args:
            raise ValueError("no call")
        arguments = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError("no call")
            arguments[keyword.arg] = _value(keyword.value)
        found.append((_dotted(node.func), arguments))
    return found


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise ValueError("no name")


def _value(node: ast.expr) -> Any:
    """A literal of Python or JSON."""
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_key(key): _value(value) for key, value in pairs}
    found = ast.literal_eval(node)
    if not isinstance(found, str | int | float | bool | None) or found in (1e999, -1e999):
        raise ValueError("no value of JSON")
    return found


def _key(node: ast.expr | None) -> str:
    found = None if node is None else _value(node)
    if not isinstance(found, str):
        raise ValueError("no key of JSON")
    return found


def _balanced(text: str) -> tuple[str, str]:
    """A list in brackets at the beginning of a text, and the rest; nothing while it has no end."""
    depth, quote, escaped = 0, "", False
    for i, c in enumerate(text):
        if quote:
            if escaped or c == "\\":
                escaped = not escaped
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        else:
            depth += (c in "[({") - (c in "])}")
            if not depth:
                return text[: i + 1], text[i + 1 :]
    return "", ""
