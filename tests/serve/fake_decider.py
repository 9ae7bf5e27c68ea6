"""A decision model without a device, as the engine uses one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ferro.models.packing import Input
from tests.models.decisions.fakes import FakeDecisionModel


class ServedDecider(FakeDecisionModel):
    """Its passes can be slow or fail."""

    name, kind, batch = "d1", "decision", 512

    def __init__(self) -> None:
        super().__init__()
        self.hyperparameters = SimpleNamespace(
            architecture="lfm2", vocabulary=len(self.tokenizer), context=self.context
        )
        self.file = SimpleNamespace(path=Path("d1.gguf"), nbytes=0)
        self.device = SimpleNamespace(info="a fake", memory=lambda: {"weights": 0})
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.passes: list[int] = []
        self.nan = False

    def forward(self, inputs: Sequence[Input]) -> Any:
        time.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        self.passes.append(len(inputs))
        rows = np.concatenate(self.score(inputs))[:, None]
        return rows * np.float32(np.nan) if self.nan else rows

    def in_parts(self, inputs: Sequence[Input], seconds: float) -> Any:
        yield None
        yield None
        yield self.forward(inputs)

    def close(self) -> None:
        pass
