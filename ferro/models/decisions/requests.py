"""A request for decisions: a state, and questions about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferro.models.decisions import values
from ferro.models.decisions.errors import DecisionError
from ferro.models.decisions.media import Media, Medium
from ferro.models.decisions.questions import Question, questions


@dataclass(frozen=True)
class Request:
    """``state`` is any JSON value, without the media that stood in it."""

    state: Any
    questions: tuple[Question, ...]
    media: tuple[Medium, ...] = ()

    @property
    def sounds(self) -> bool:
        """Whether it is about an audio clip."""
        return any(medium.sounds for medium in self.media)


def read(body: Any) -> Request:
    """The request of a JSON object. Fields that are not known count for nothing.

    Raises DecisionError.
    """
    if not isinstance(body, Mapping):
        raise DecisionError("a request must be a JSON object")
    values.check(body)
    if "state" not in body:
        raise DecisionError('"state" must be provided')
    asked = questions(body.get("questions"))
    media = Media()
    state = media.take(body)
    return Request(state, asked, tuple(media.found))
