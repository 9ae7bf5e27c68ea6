"""A language model on a device: from tokens to logits."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ferro.models.architectures import recognise
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.passes import Piece
from ferro.models.tokenizer import Tokenizer
from ferro.runtime.device import Device

CONTEXT = 4096


class LanguageModel:
    """Weights, caches and plans of one model file on one device. Close it, or use ``with``."""

    def __init__(self, file: GgufFile, device: Device, context: int | None, slots: int) -> None:
        self.file, self.device, self.slots = file, device, slots
        self.hyperparameters: Hyperparameters = recognise(file)
        self.tokenizer = Tokenizer(file.metadata)
        self.context = context or min(CONTEXT, self.hyperparameters.context)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        device: Device,
        *,
        weights: str = "q8",
        cache: str = "f16",
        context: int | None = None,
        slots: int = 1,
    ) -> LanguageModel:
        """Load a model file onto ``device``.

        ``weights`` is "q8" or "f32", ``cache`` "f32", "f16" or "int8"; ``context`` is how many
        tokens a slot holds (default: 4096, or what the model takes), ``slots`` how many sequences.
        """
        return cls(GgufFile(path), device, context, slots)

    def forward(self, pieces: Sequence[Piece]) -> npt.NDArray[np.float32]:
        """The logits of the wanted rows, float32 [sum of ``wanted``, vocabulary]."""
        return np.empty(
            (sum(piece.wanted for piece in pieces), self.hyperparameters.vocabulary), np.float32
        )

    def close(self) -> None:
        """Give the device's memory back."""

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
