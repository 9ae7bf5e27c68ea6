"""Embedding models: a vector for each text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ferro.models.encoder import Encoder
from ferro.models.packing import Input


class EmbeddingModel(Encoder):
    """An embedding model on a device. Close it, or use ``with``."""

    kind = "embedding"

    @property
    def out(self) -> int:
        """How many numbers a vector has."""
        return self.hyperparameters.out or self.hyperparameters.width

    def encode(self, text: str) -> list[int]:
        """The ids of a text, which is all of an input: BOS and EOS are added, control tokens read,
        as in llama.cpp's embeddings endpoint."""
        return self.tokenizer.encode(text)

    def embed_ids(self, ids: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """The pooled vectors of inputs, float32 [n, out], not normalised.

        An input's vector is the same bits in any company. Raises PassError and ContextFull (with
        the number of the input) before anything is computed; OutOfMemory, DeviceLost.
        """
        inputs = [Input(tuple(each)) for each in ids]
        vectors = np.empty((len(inputs), self.out), np.float32)
        for numbers, rows in self.passes(inputs):
            vectors[numbers] = rows
        return vectors
