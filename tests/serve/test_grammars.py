"""Grammars without a server: whatever tokens are drawn, what comes out fits the schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from ferro.models.tokenizer import Tokenizer
from ferro.serve.errors import ApiError
from ferro.serve.grammars import HERMES_MARKS, LFM2_MARKS, Grammars
from ferro.serve.jobs import Guide
from ferro.serve.tool_calls import MARKS, ToolCalls
from tests.models.vocabularies import metadata, tokenizer

LFM2 = tokenizer("lfm2")
GRAMMARS = Grammars(LFM2)
MOST = 600
NAMES = ("a", "b", "é", "a long name", "x-y")


def schema(draw: random.Random, depth: int = 0) -> Any:
    """A schema of which every text is short."""
    kinds = ["enum", "const", "boolean", "null", "integer", "number", "string", "pattern", "format"]
    if depth < 3:
        kinds += ["array", "object", "anyOf", "tuple"] * 2
    match draw.choice(kinds):
        case "enum":
            return {"enum": draw.sample(["a", "ü", 1, 2.5, None, True, ["x"], {"k": 1}], 3)}
        case "const":
            return {"const": draw.choice(["x", 7, None, False, [1, 2]])}
        case "integer":
            low = draw.randrange(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + draw.randrange(200)}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": draw.randrange(1, 9)}
        case "string":
            return {"type": "string", "minLength": 1, "maxLength": draw.randrange(1, 9)}
        case "pattern":
            return {"type": "string", "pattern": draw.choice(["^[a-c]{1,4}$", r"^\d{2}:\d{2}$"])}
        case "format":
            return {"type": "string", "format": draw.choice(["date", "time", "uuid", "ipv4"])}
        case "array":
            most = draw.randrange(1, 4)
            return {"type": "array", "items": schema(draw, depth + 1), "maxItems": most}
        case "tuple":
            items = [schema(draw, depth + 1) for _ in range(2)]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": 2}
        case "anyOf":
            return {"anyOf": [schema(draw, depth + 1) for _ in range(2)]}
        case "object":
            names = draw.sample(NAMES, draw.randrange(1, 4))
            return {
                "type": "object",
                "properties": {name: schema(draw, depth + 1) for name in names},
                "required": names[: draw.randrange(len(names) + 1)],
                "additionalProperties": False,
            }
        case kind:
            return {"type": kind}


def written(guide: Guide, seed: int) -> tuple[str, bool]:
    """A text of tokens that are drawn from what is allowed, and whether it has an end."""
    draw, ids = np.random.default_rng(seed), list[int]()
    while len(ids) < MOST:
        mask = guide.allowed()
        assert mask is not None and mask.shape == (len(LFM2),)
        token = int(draw.choice(np.flatnonzero(mask)))
        guide.took(token)
        if token in LFM2.vocabulary.ends:
            return LFM2.decode(ids, special=True), True
        ids.append(token)
    return LFM2.decode(ids, special=True), False


def test_two_hundred_schemas_are_kept() -> None:
    draw, finished = random.Random(5), 0
    for number in range(200):
        wanted = schema(draw)
        text, ended = written(GRAMMARS.json(wanted, "schema")(), number)
        if ended:
            finished += 1
            checker = jsonschema.Draft202012Validator(wanted)
            checker.validate(json.loads(text))
    assert finished > 190


def test_guides_of_one_grammar_are_apart() -> None:
    guides = GRAMMARS.json({"type": "integer", "minimum": 10, "maximum": 99}, "schema")
    one, other = guides(), guides()
    one.took(LFM2.encode("5", add_special=False)[0])
    mask = other.allowed()
    assert mask is not None and mask[LFM2.encode("7", add_special=False)[0]]
    assert not mask[LFM2.encode("0", add_special=False)[0]]


@pytest.mark.parametrize("marks", [LFM2_MARKS, HERMES_MARKS])
@pytest.mark.parametrize("several", [True, False])
def test_calls_are_ones_that_can_be_read(marks: tuple[str, str], several: bool) -> None:
    assert MARKS[marks[0]] == marks[1]
    parameters = {
        "type": "object",
        "properties": {"x": {"enum": ["a", "]", "'"]}},
        "required": ["x"],
        "additionalProperties": False,
    }
    tools = [{"function": {"name": name, "parameters": parameters}} for name in ("f", "g.h")]
    for seed in range(8):
        text, ended = written(GRAMMARS.calls(tools, marks, several)(), seed)
        if not ended:
            continue
        made = ToolCalls(["f", "g.h"])
        content, calls = made.push(text)
        rest, more = made.finish()
        calls += more
        assert content + rest == "" and calls and (several or len(calls) == 1)
        for call in calls:
            assert call["function"]["name"] in ("f", "g.h")
            jsonschema.validate(json.loads(call["function"]["arguments"]), parameters)


def test_marks_that_are_tokens_are_those_tokens() -> None:
    tokens = list(metadata("lfm2")["tokenizer.ggml.tokens"])
    places = [tokens.index("<|reserved_7|>"), tokens.index("<|reserved_8|>")]
    for place, mark in zip(places, LFM2_MARKS, strict=True):
        tokens[place] = mark
    marked = Tokenizer(metadata("lfm2", tokens=tokens))
    tools = [{"function": {"name": "f", "parameters": {"type": "null"}}}]
    guide = Grammars(marked).calls(tools, LFM2_MARKS, several=False)()
    mask = guide.allowed()
    assert mask is not None and np.flatnonzero(mask).tolist() == places[:1]


def test_a_tool_cannot_switch_its_own_enforcement_off() -> None:
    parameters = {"type": "object", "x-guidance": {"lenient": True}}
    with pytest.raises(ApiError, match="x-guidance"):
        GRAMMARS.calls([{"function": {"name": "f", "parameters": parameters}}], LFM2_MARKS, True)
