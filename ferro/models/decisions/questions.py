"""Questions of a request: a type, instructions, and options in the order of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ferro.models.decisions.errors import DecisionError

MOST_OPTIONS = 255
LEVELS = range(2, 11)
FALSE, TRUE = "false", "true"
# what a description of yes or no goes by, the first that is there
_NAMES = {FALSE: (FALSE, "no"), TRUE: (TRUE, "yes")}


class Type(IntEnum):
    """What a question asks for; the number is the column of a model's scores."""

    CHOICE = 0
    SCORE = 1
    NOUL = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Option:
    """``description`` is any JSON value."""

    key: str
    description: Any = None

    @property
    def described(self) -> bool:
        return self.description is not None and self.description != ""


@dataclass(frozen=True)
class Question:
    """``instructions`` are any JSON value but null."""

    id: str
    type: Type
    instructions: Any
    options: tuple[Option, ...]


def questions(given: Any) -> tuple[Question, ...]:
    """The questions of a request, in its order. Raises DecisionError."""
    if not isinstance(given, Mapping) or not given:
        raise DecisionError('"questions" must be a non-empty object')
    return tuple(_question(id, each) for id, each in given.items())


def _question(id: str, given: Any) -> Question:
    try:
        if not isinstance(given, Mapping):
            raise DecisionError("must be an object")
        instructions = given.get("instructions")
        if instructions is None:
            raise DecisionError('"instructions" must be provided')
        type, options = _options(given.get("type"), given.get("criteria"))
        if len(options) > MOST_OPTIONS:
            raise DecisionError(
                f"too many options ({len(options)}), this model supports at most {MOST_OPTIONS}"
            )
    except DecisionError as error:
        raise DecisionError(f"questions.{id}: {error}") from None
    return Question(id, type, instructions, options)


def _options(name: Any, criteria: Any) -> tuple[Type, tuple[Option, ...]]:
    found = next((type for type in Type if type.word == name), None)
    if found is None:
        raise DecisionError('"type" must be one of: choice, score, noul')
    return found, tuple(_READERS[found](criteria))


def _choices(criteria: Any) -> Iterator[Option]:
    if not isinstance(criteria, Mapping) or not criteria:
        raise DecisionError('"criteria" must be a non-empty object')
    for key, description in criteria.items():
        yield Option(key, description)


def _levels(criteria: Any) -> Iterator[Option]:
    if not isinstance(criteria, list | tuple) or len(criteria) not in LEVELS:
        raise DecisionError('"criteria" must be an array of 2 to 10 levels')
    for i, description in enumerate(criteria):
        yield Option(str(i), description)


def _yes_or_no(criteria: Any) -> Iterator[Option]:
    if criteria is not None and not isinstance(criteria, Mapping):
        raise DecisionError('"criteria" must be an object')
    there = criteria or {}
    for key, names in _NAMES.items():
        name = next((name for name in names if name in there), key)
        yield Option(key, there.get(name))


_READERS: dict[Type, Callable[[Any], Iterator[Option]]] = {
    Type.CHOICE: _choices,
    Type.SCORE: _levels,
    Type.NOUL: _yes_or_no,
}
