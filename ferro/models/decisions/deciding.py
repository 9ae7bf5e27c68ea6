"""From requests to replies: prompts, the scores that a model gives them, answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.models.decisions import answers
from ferro.models.decisions.errors import unsupported
from ferro.models.decisions.prompts import Prompts
from ferro.models.decisions.requests import Request
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
