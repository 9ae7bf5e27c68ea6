"""Replies of a given form: JSON schemas and calls of tools, enforced token by token.

Closed on failure: what a schema asks for and cannot be enforced is refused, by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ferro.models.sampler import Mask
from ferro.models.tokenizer import Tokenizer
from ferro.serve.errors import ApiError, bad
from ferro.serve.jobs import Guide

OVERRIDES = "x-guidance"  # with which a schema could switch its own enforcement off
SPACE = r"[ \n]{0,16}"  # a model that is held to JSON may write blanks for ever
LONGEST_SCHEMA = 200_000
LFM2_MARKS = ("<|tool_call_start|>", "<|tool_call_end|>")  # around a list of calls
HERMES_MARKS = ("<tool_call>", "</tool_call>")  # around each


class GrammarFailed(RuntimeError):
    """A grammar that got stuck in the middle of a reply."""


class Grammars:
    """Makes guides for one vocabulary; its tokens are read when the first one is made."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: Any = None

    def json(self, schema: Any, param: str) -> Callable[[], Guide]:
        """Guides to a JSON text of a schema. Raises ApiError."""
        library = _library()
        if not isinstance(schema, dict):
            raise bad("a schema must be an object", param)
        text = json.dumps(schema)
        if len(text) > LONGEST_SCHEMA:
            raise bad(f"the schema has over {LONGEST_SCHEMA} characters", param)
        if _mentions(schema, OVERRIDES):
            raise bad(f"`{OVERRIDES}` is not for requests", param)
        try:
            grammar = library.LLMatcher.grammar_from_json_schema(
                text, overrides={"whitespace_pattern": SPACE}
            )
        except ValueError as error:
            raise bad(f"the schema cannot be used: {error}", param) from None
        return self._guides(grammar, "the schema cannot be enforced", param)

    def calls(
        self, tools: Sequence[Mapping[str, Any]], marks: tuple[str, str], several: bool
    ) -> Callable[[], Guide]:
        """Guides to calls of some of ``tools`` between ``marks``. Raises ApiError."""
        if _mentions([tool["function"] for tool in tools], OVERRIDES):
            raise bad(f"`{OVERRIDES}` is not for requests", "tools")
        listed = marks == LFM2_MARKS
        start, end = (self._mark(mark) for mark in marks)
        if listed:
            further = '(", " call)*' if several else ""
            rules = [f'start: {start} "[" call {further} "]" {end}']
        else:
            further = '("\\n" marked)*' if several else ""
            rules = [f"start: marked {further}", f"marked: {start} call {end}"]
        rules.append("call: " + " | ".join(f"call{i}" for i in range(len(tools))))
        rules += [f"call{i}: {_json_call(tool['function'])}" for i, tool in enumerate(tools)]
        grammar = _library().LLMatcher.grammar_from_lark("\n".join(rules))
        return self._guides(grammar, "the tools' parameters cannot be enforced", "tools")

    def _mark(self, mark: str) -> str:
        """A mark in a grammar: a token where there is one for it."""
        vocabulary = self._tokenizer.vocabulary
        special = mark in vocabulary.ids and not self._tokenizer.piece(vocabulary.ids[mark])
        return mark if special else json.dumps(mark)

    def _guides(self, grammar: str, problem: str, param: str) -> Callable[[], Guide]:
        library = _library()
        matcher = library.LLMatcher(self._tokens(), grammar, log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().partition("\n")[0]
            raise bad(f"{problem}: {reason}"[:500], param)

        def made() -> GrammarGuide:
            return GrammarGuide(matcher.deep_copy(), len(self._tokenizer))

        try:
            # some grammars that have no text show it with the first token only
            begins = made().begins()
        except GrammarFailed as error:
            raise bad(f"{problem}: {error}"[:500], param) from None
        if not begins:
            raise bad(f"{problem}: no text has this form", param)
        return made

    def _tokens(self) -> Any:
        if self._known is None:
            library, known = _library(), self._tokenizer.vocabulary
            wrapper = library.TokenizerWrapper(_Vocabulary(self._tokenizer))
            self._known = library.LLTokenizer(wrapper, eos_token=sorted(known.ends))
        return self._known


class GrammarGuide:
    """Lets through what a matcher does."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher, self._size = matcher, vocabulary
        self._words = np.zeros(-(-vocabulary // 32), np.int32)

    def forced(self) -> int | None:
        return None

    def begins(self) -> bool:
        """Whether there is a token that is let through."""
        return bool(self.allowed().any())

    def allowed(self) -> Mask:
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        if self._matcher.is_error():
            raise GrammarFailed(self._matcher.get_error().partition("\n")[0])
        bits = np.unpackbits(self._words.view(np.uint8), bitorder="little")
        return bits[: self._size].astype(np.bool_)

    def took(self, token: int) -> None:
        self._matcher.consume_token(token)


class _Vocabulary:
    """The tokens as the library reads them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        known = tokenizer.vocabulary
        self._tokenizer = tokenizer
        self.eos_token_id = min(known.ends, default=0)
        self.bos_token_id = known.role("bos")
        self.tokens = [tokenizer.piece(i, special=True) for i in range(len(tokenizer))]
        self.special_token_ids = [i for i in range(len(tokenizer)) if not tokenizer.piece(i)]

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False, parse_special=False)


def _json_call(function: Mapping[str, Any]) -> str:
    """A call as a JSON object, in the grammar's language."""
    parameters = function.get("parameters") or {"type": "object"}
    schema = {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        OVERRIDES: {"whitespace_pattern": SPACE},
    }
    return f"%json {json.dumps(schema)}"


def _mentions(value: Any, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(_mentions(each, key) for each in value.values())
    return isinstance(value, list) and any(_mentions(each, key) for each in value)


def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise ApiError(
            501, 'this needs llguidance: pip install "ferro[serve]"', code="not_supported"
        ) from None
    return llguidance
