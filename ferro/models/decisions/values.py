"""JSON values as text of a prompt, as llama.cpp's templates write them, and what is replaced in
them so that no text can pass for a part of the prompt."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ferro.models.decisions.errors import DecisionError
from ferro.models.documents import BadDocument, check_depth

_SPECIAL = re.compile(r"<\|([A-Za-z0-9_]+)\|>")
_SEPARATOR = "<<d1omni:"  # between the pieces of llama.cpp's template
_ESCAPES = {
    **{chr(code): f"\\u{code:04x}" for code in range(0x20)},
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


def check(value: Any) -> None:
    """Raises DecisionError for what is no JSON value: other types, numbers that are not finite,
    lone surrogates, nesting without end."""
    try:
        check_depth(value)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise DecisionError("a string has half of a surrogate pair, which is no text") from None
    except BadDocument as error:
        raise DecisionError(f"the request {error}") from None
    except (TypeError, ValueError) as error:
        raise DecisionError(f"the request is no JSON: {error}") from None


def text_of(value: Any) -> str:
    """A string itself, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """JSON on one line, with blanks behind commas and colons, characters as they are, and six
    digits of numbers that are not whole. Raises DecisionError for numbers that no double holds."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        members = (f"{_quoted(key)}: {json_text(each)}" for key, each in value.items())
        return f"{{{', '.join(members)}}}"
    return f"[{', '.join(map(json_text, value))}]"


def _number(value: int | float) -> str:
    """As a C++ stream prints a double; whole numbers of 64 bits are no doubles there."""
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return str(value)
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
    if not math.isfinite(wide):
        raise DecisionError("a number of the request is too large")
    return f"{wide:g}"


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)}"'


def escaped(value: Any) -> Any:
    """``value`` in whose strings and keys no control token can be read: ``<|x|>`` is ``<¦x¦>``."""
    if isinstance(value, str):
        return escaped_key(value).replace(_SEPARATOR, "<<d1omni ")
    if isinstance(value, dict):
        return {escaped_key(key): escaped(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [escaped(each) for each in value]
    return value


def escaped_key(text: str) -> str:
    return _SPECIAL.sub("<\N{BROKEN BAR}\\1\N{BROKEN BAR}>", text) if "<|" in text else text
