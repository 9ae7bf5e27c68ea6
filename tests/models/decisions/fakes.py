"""A decision model without a device: scores that are a function of prompt, place and kind."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from ferro.commands import encoder_options
from ferro.models.decisions.deciding import Decider, Scores
from ferro.models.decisions.prompts import Prompts
from ferro.models.packing import Input
from tests.models import vocabularies


class FakeDecisionModel(Decider):
    """Stands for a DecisionModel."""

    name = "fake"
    temperatures: Mapping[str, float] = {"noul": 0.5}
    tokenizer = vocabularies.tokenizer("lfm2")
    context = 16384
    prompts = Prompts(tokenizer, context)

    def __init__(self) -> None:
        self.asked: list[Input] = []

    def score(self, inputs: Sequence[Input]) -> list[Scores]:
        self.asked += inputs
        return [np.array([self._score(one, row) for row in one.wanted]) for one in inputs]

    def rows(self, ids: Sequence[int]) -> Scores:
        every = tuple(range(len(ids)))
        return np.stack(self.score([Input(tuple(ids), every, kind) for kind in range(3)]), 1)

    @staticmethod
    def _score(one: Input, row: int) -> np.float32:
        seen = zlib.crc32(repr((one.tokens, row, one.kind)).encode())
        return np.float32(seen / 2**31 - 1)


def put_in_place(model: FakeDecisionModel, monkeypatch: pytest.MonkeyPatch) -> FakeDecisionModel:
    """The commands open this one, whatever file they are given."""
    monkeypatch.setattr(encoder_options, "opened", lambda args, path: nullcontext(model))
    Path("d1.gguf").touch()
    return model
