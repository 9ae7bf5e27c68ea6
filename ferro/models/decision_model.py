"""Decision models: a score for each option of a question, in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ferro.models.architectures.decision_head import TYPES
from ferro.models.decisions.deciding import Decider, Scores
from ferro.models.decisions.prompts import Prompts
from ferro.models.encoder import Encoder
from ferro.models.errors import UnsupportedArchitecture, WrongValue
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.packing import Input
from ferro.models.passes import PassError

SUPPORTED = "lfm2-d1-omni"
TYPE, TEMPERATURE = "decision.type", "decision.temperature."
REASONS = {
    "lfm2-d1": ": it answers by logits of several forms of each label, and how those are combined"
    " is not published"
}


class DecisionModel(Encoder, Decider):
    """A decision model on a device. Close it, or use ``with``. ``temperatures`` are those that the
    file names, by what follows "decision.temperature." in their keys ("choice.3_5", "noul.2")."""

    kind = "decision"
    usual_context = 16384  # tokens of a prompt without media: the publisher's budget

    @property
    def name(self) -> str:
        return self.file.path.stem

    @cached_property
    def prompts(self) -> Prompts:
        return Prompts(self.tokenizer, self.context)

    @property
    def temperatures(self) -> Mapping[str, float]:
        return temperatures(self.file, self.hyperparameters.architecture)

    def score(self, inputs: Sequence[Input]) -> list[Scores]:
        """What the wanted rows of each input score for the type of question that its ``kind`` is
        (0 choice, 1 score, 2 noul), float32 [wanted], in order. One row at least is wanted of each.

        An input's scores are the same bits in any company. Raises PassError and ContextFull (with
        the number of the input) before anything is computed; OutOfMemory, DeviceLost.
        """
        found: list[Scores] = [np.empty(0, np.float32)] * len(inputs)
        for numbers, rows in self.passes(inputs):
            ends = np.add.accumulate([len(inputs[i].wanted) for i in numbers])
            for i, part in zip(numbers, np.split(rows[:, 0], ends[:-1]), strict=True):
                found[i] = part
        return found

    def rows(self, ids: Sequence[int]) -> Scores:
        """What every row of an input scores for every type of question, float32 [n, 3].

        Raises what ``score`` does.
        """
        every = tuple(range(len(ids)))
        inputs = [Input(tuple(ids), every, kind) for kind in range(TYPES)]
        return np.stack(self.score(inputs), 1)

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, control tokens read and none added."""
        return self.tokenizer.encode(text, add_special=False)

    def check_inputs(self, inputs: Sequence[Input]) -> None:
        super().check_inputs(inputs)
        for i, each in enumerate(inputs):
            if not 0 <= each.kind < TYPES:
                raise PassError(f"input {i}: there is no type {each.kind} (0 to {TYPES - 1})")
            if not each.wanted:
                raise PassError(f"input {i}: no rows are wanted")

    @classmethod
    def check(cls, file: GgufFile, made: Hyperparameters) -> None:
        key = f"{made.architecture}.{TYPE}"
        kind = file.metadata.text(key)
        if kind != SUPPORTED or not made.head_blocks:
            raise UnsupportedArchitecture(
                str(file.path),
                f"decision models of type `{kind}` are not supported (supported: {SUPPORTED})"
                f"{REASONS.get(kind, '')}",
            )
        temperatures(file, made.architecture)


def temperatures(file: GgufFile, architecture: str) -> dict[str, float]:
    """Temperatures as llama.cpp reads them: by way of text with 6 decimals, then float32.

    Raises WrongValue for one that is not above 0, or not finite.
    """
    prefix = f"{architecture}.{TEMPERATURE}"
    found = {}
    for key in file.metadata:
        if not key.startswith(prefix):
            continue
        read = float(np.float32(f"{file.metadata.real(key):f}"))
        if not 0 < read < math.inf:
            raise WrongValue(str(file.path), f"the key `{key}`: a temperature of {read}")
        found[key.removeprefix(prefix)] = read
    return found
