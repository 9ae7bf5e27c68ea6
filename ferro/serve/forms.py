"""The form that a chat request asks its reply to have: tools, ``tool_choice``,
``response_format``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ferro.models.conversation import BadConversation, Conversation
from ferro.serve.errors import bad
from ferro.serve.fields import Fields
from ferro.serve.grammars import HERMES_MARKS, LFM2_MARKS, Grammars
from ferro.serve.jobs import Guide
from ferro.serve.parameters import Flag, Free, Items, Object, Parameter, Text
from ferro.serve.thinking import CLOSE, OPEN
from ferro.serve.tool_calls import MARKS

FORMATS = ("text", "json_object", "json_schema")

TOOLS = Items(("tools",), {"type": "object"})
CHOICE = Free(("tool_choice",), {"anyOf": [
    {"type": "string", "enum": ["auto", "none", "required"]}, {"type": "object"},
]})  # fmt: skip
SEVERAL = Flag(("parallel_tool_calls",), usual=True)
KIND = Text(("type",), FORMATS, required=True)
SCHEMA = Free(("schema",), {"type": ["object", "boolean"]})
NAMED_SCHEMA = Object(("json_schema",), (SCHEMA,))
FORMAT = Object(("response_format",), (KIND, NAMED_SCHEMA, SCHEMA))
FORM: tuple[Parameter, ...] = (CHOICE, SEVERAL, FORMAT)


@dataclass(frozen=True)
class Form:
    """``conversation`` has the tools that are offered, ``names`` are theirs; ``guides`` makes what
    enforces the form, if anything does."""

    conversation: Conversation
    names: tuple[str, ...] = ()
    guides: Callable[[], Guide] | None = None


def read(fields: Fields, talk: Conversation, grammars: Grammars, lfm2: bool) -> Form:
    """``lfm2``: the model's own marks of calls. Raises ApiError."""
    choice, several = CHOICE.read(fields), SEVERAL.read(fields)
    schema = schema_of(fields)
    try:
        tools = talk.checked_tools()
    except BadConversation as error:
        raise bad(str(error), "tools") from None
    names = tuple(tool["function"]["name"] for tool in tools)
    wanted = wanted_names(fields, choice, names)
    if wanted is None:
        talk, names = replace(talk, tools=()), ()
    guides = None
    if schema is not None:
        if wanted:
            raise bad("`response_format` and a required call cannot both be had", "tool_choice")
        guides = grammars.json(schema, "response_format")
    elif wanted:
        chosen = [tool for tool in tools if tool["function"]["name"] in wanted]
        guides = grammars.calls(chosen, LFM2_MARKS if lfm2 else HERMES_MARKS, several)
    if guides is not None and fields.flag("ignore_eos"):
        raise bad("`ignore_eos` cannot be had with a reply of a given form", "ignore_eos")
    return Form(talk, names, guides)


def wanted_names(fields: Fields, choice: Any, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The tools of which one must be called; none for free choice, None if there are no tools."""
    if choice in (None, "auto"):
        return () if names else None
    if choice == "none":
        return None
    function = choice.get("function", choice) if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if choice != "required" and not isinstance(name, str):
        raise fields.wrong("tool_choice", "must be auto, none, required or name a function")
    if not names:
        raise fields.wrong("tool_choice", "needs `tools`")
    if choice == "required":
        return names
    if name not in names:
        raise fields.wrong("tool_choice", f"names {name!r}, which is none of the tools"[:200])
    return (str(name),)


def schema_of(fields: Fields) -> Any:
    """The schema that a reply has to have; None for any text."""
    form = FORMAT.read(fields)
    if form is None:
        return None
    kind = KIND.read(form)
    if not kind:
        raise form.wrong("type", f"is needed: one of {', '.join(FORMATS)}")
    if kind == "text":
        return None
    if kind == "json_object":
        return SCHEMA.read(form) or {"type": "object"}
    given = NAMED_SCHEMA.read(form)
    schema = SCHEMA.read(form if given is None else given)
    if schema is None:
        raise form.wrong("json_schema", "with a schema is needed")
    return schema


def shown(ids: Mapping[str, int], tools: bool) -> frozenset[int]:
    """The control tokens without which a reply cannot be taken apart: marks of reasoning and, with
    ``tools``, of calls."""
    marks = [OPEN, CLOSE, *(MARKS if tools else ()), *(MARKS.values() if tools else ())]
    return frozenset(ids[mark] for mark in marks if mark in ids)
