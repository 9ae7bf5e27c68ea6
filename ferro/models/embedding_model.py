"""Embedding models: a vector for each text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.models import tasks
from ferro.models.encoder import Encoder
from ferro.models.loaded import BadOption
from ferro.models.packing import Input
from ferro.models.sequences import sequence
from ferro.models.vectors import finished, finite

Text = str | Sequence[int]  # or its token ids


class EmbeddingModel(Encoder):
    """An embedding model on a device. Close it, or use ``with``."""

    kind = "embedding"
    usual_context = 8192  # what EmbeddingGemma 2 was made for, whatever its files say

    @property
    def out(self) -> int:
        """How many numbers a vector has."""
        return self.hyperparameters.out

    def embed(
        self,
        texts: Sequence[Text],
        *,
        task: str | None = None,
        titles: Sequence[str | None] | None = None,
        dimensions: int | None = None,
        normalise: bool = True,
    ) -> npt.NDArray[np.float32]:
        """The vectors of texts, float32 [n, dimensions].

        A text may be given as its token ids, as ``encode`` makes them. ``task`` names what the
        vectors are for ("query", "document", ...: ``tasks.py``) and puts that task's prefix in
        front of every text; ``titles`` are those of documents, one for each text (None: it has
        none). ``dimensions`` keeps the first numbers of each vector (default: all; EmbeddingGemma
        was trained for 768, 512, 256 and 128). Vectors have length 1, unless ``normalise`` is
        false.

        A vector is the same bits in any company. Raises NoSuchTask, BadOption, PassError and
        ContextFull before anything is computed; ModelClosed, OutOfMemory, DeviceLost, NotFinite.
        """
        width = self._width(dimensions)
        texts = listed(texts, "texts")
        titles = [None] * len(texts) if titles is None else listed(titles, "titles")
        return finished(finite(self._pooled(self._inputs(texts, task, titles))), width, normalise)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, which is all of an input: BOS and EOS are added as the file says,
        control tokens read, as in llama.cpp's embeddings endpoint."""
        return self.tokenizer.encode(text)

    def embed_ids(self, ids: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """The pooled vectors of inputs, float32 [n, out], not normalised.

        An input's vector is the same bits in any company. Raises PassError and ContextFull (with
        the number of the input) before anything is computed; ModelClosed, OutOfMemory, DeviceLost.
        """
        return self._pooled([Input(tuple(each)) for each in ids])

    def _pooled(self, inputs: Sequence[Input]) -> npt.NDArray[np.float32]:
        vectors = np.empty((len(inputs), self.out), np.float32)
        for numbers, rows in self.passes(inputs):
            vectors[numbers] = rows
        return vectors

    def _width(self, dimensions: int | None) -> int:
        if dimensions is None:
            return self.out
        if not isinstance(dimensions, Integral) or not 1 <= dimensions <= self.out:
            raise BadOption(f"dimensions must be 1 to {self.out}, got {dimensions}")
        return int(dimensions)

    def _inputs(
        self, texts: Sequence[Text], task: str | None, titles: Sequence[str | None]
    ) -> list[Input]:
        prefix = tasks.task(self.hyperparameters.architecture, task)
        if len(titles) != len(texts):
            raise BadOption(f"{len(titles)} titles for {len(texts)} texts")
        found: list[Input] = []
        for i, (text, title) in enumerate(zip(texts, titles, strict=True)):
            if title is not None and not isinstance(title, str):
                raise BadOption(f"title {i} is no text, but a {type(title).__name__}")
            given = text if isinstance(text, str) else listed(text, f"input {i}: token ids")
            found.append(sequence(self.encode, given, prefix, title))
        return found


def listed(given: Iterable[Any], what: str) -> list[Any]:
    """Raises BadOption for what is no list, tuple, array or the like; a text is none."""
    if isinstance(given, str | bytes | Set | Mapping) or not isinstance(given, Iterable):
        raise BadOption(f"{what} are a list, not a {type(given).__name__}")
    return list(given)
