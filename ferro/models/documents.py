"""JSON documents that others wrote, read within limits."""

from __future__ import annotations

import json
from typing import Any, NoReturn

DEEPEST = 64  # arrays and objects within each other


class BadDocument(ValueError):
    """A text that is no JSON, or too deep: the message goes on after a name for the document."""

    exit_code = 2


def parse(data: bytes | str) -> Any:
    """The value of a document. A key that comes twice has its first place and its last value.

    Raises BadDocument.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        found = json.loads(text, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise BadDocument(f"is no UTF-8: byte {error.start} cannot be read") from None
    except RecursionError:
        raise BadDocument(_too_deep()) from None
    except ValueError as error:
        raise BadDocument(f"is no JSON: {error}") from None
    check_depth(found)
    return found


def check_depth(value: Any) -> None:
    """Raises BadDocument for arrays and objects in more than 64 levels."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
        level = [each for each in inner if isinstance(each, dict | list | tuple)]
        if not level:
            return
    raise BadDocument(_too_deep())


def _too_deep() -> str:
    return f"is nested too deep (at most {DEEPEST} levels)"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
