"""From requests to replies: prompts, the scores that a model gives them, answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.models.decisions import answers
from ferro.models.decisions.errors import unsupported
from ferro.models.decisions.prompts import Prompts
from ferro.models.decisions.requests import Request, read
from ferro.models.packing import Input

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Asked:
    """A request and the prompts of its questions, in order."""

    request: Request
    inputs: tuple[Input, ...]

    @classmethod
    def of(cls, request: Request, prompts: Prompts) -> Asked:
        """Raises DecisionError."""
        if request.media:
            kind = "audio" if request.sounds else "image"
            raise unsupported(
                f"This server does not support {kind} input for decisions. For a model that"
                " supports it, start it with `--mmproj`"
            )
        return cls(request, tuple(prompts.inputs(request)))

    @property
    def tokens(self) -> int:
        return sum(map(len, self.inputs))

    def reply(
        self, name: str, scores: Sequence[Scores], temperatures: Mapping[str, float]
    ) -> dict[str, Any]:
        """The body of a reply by the model of that name, which gave each question's options these
        scores. Raises DecisionError for scores that are not finite."""
        found = {}
        for question, row in zip(self.request.questions, scores, strict=True):
            degree = answers.temperature(question, temperatures, bool(self.request.media))
            found[question.id] = answers.answer(question, answers.probabilities(row, degree))
        return {
            "model": name,
            "answers": found,
            "usage": {"input_tokens": self.tokens, "output_tokens": 0},
        }


class Decider(ABC):
    """What answers requests: a model that scores the options of prompts."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What replies call the model."""

    @property
    @abstractmethod
    def prompts(self) -> Prompts:
        """What makes its prompts. Raises BadVocabulary."""

    @property
    @abstractmethod
    def temperatures(self) -> Mapping[str, float]:
        """By type, or type and number of options: "noul", "choice.3_5"."""

    @abstractmethod
    def score(self, inputs: Sequence[Input]) -> list[Scores]:
        """The scores of the wanted rows of each input, float32 [rows], in order, each by the head
        of its input's kind. An input's scores are the same bits in any company.

        Raises PassError and ContextFull before anything is computed; OutOfMemory, DeviceLost.
        """

    def decide(self, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answers about a state, by the ids of their questions: ``{"refund": {"type": "noul",
        "noul": 0.98}}``. State and questions are those of a request (docs/decisions.md).

        Raises DecisionError and what ``score`` does.
        """
        (reply,) = self.replies([{"state": state, "questions": questions}])
        found: dict[str, Any] = reply["answers"]
        return found

    def replies(self, bodies: Sequence[Any]) -> list[dict[str, Any]]:
        """The replies to requests, which share passes, in order. Raises DecisionError, before
        anything is computed where it is a request's fault, and what ``score`` does."""
        asked = [Asked.of(read(body), self.prompts) for body in bodies]
        scores = iter(self.score([each for one in asked for each in one.inputs]))
        return [
            one.reply(self.name, list(islice(scores, len(one.inputs))), self.temperatures)
            for one in asked
        ]
