"""A language model without a device: logits that depend on the tokens before them."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ferro.commands import bench, engine_options
from ferro.models.gguf_metadata import Metadata
from ferro.models.passes import Piece
from ferro.models.tokenizer import Tokenizer
from tests.models import vocabularies


class FakeModel:
    """Stands for a LanguageModel. A row's logits are a function of the whole text up to it; with a
    ``script`` the first pass that wants a row gives its first token, the next one the second."""

    def __init__(
        self,
        script: Sequence[int] | None = None,
        *,
        vocabulary: str = "lfm2",
        context: int = 128,
        attends: bool = True,
        keys: Mapping[str, Any] | None = None,
    ) -> None:
        """``keys`` are further ones of the file's metadata."""
        self.tokenizer: Tokenizer = vocabularies.tokenizer(vocabulary)
        self.context, self.slots = context, 1
        self.hyperparameters = SimpleNamespace(
            architecture="fake",
            vocabulary=len(self.tokenizer),
            layers=(SimpleNamespace(attends=attends),),
            context=context,
        )
        metadata = Metadata("fake.gguf", vocabularies.metadata(vocabulary) | (keys or {}))
        self.file = SimpleNamespace(metadata=metadata, path=Path("fake.gguf"), nbytes=0)
        self.finished: list[int] = []
        self.device = SimpleNamespace(
            info="a fake",
            target=SimpleNamespace(name="none"),
            memory=lambda: {"weights": 0},
            finish=lambda: self.finished.append(len(self.passes)),
        )
        self.passes: list[Piece] = []
        self.held: dict[int, list[int]] = {}
        self._script = None if script is None else iter(script)

    def forward(self, pieces: Sequence[Piece]) -> npt.NDArray[np.float32]:
        return np.concatenate([self._rows(piece) for piece in pieces])

    def close(self) -> None:
        pass

    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _rows(self, piece: Piece) -> npt.NDArray[np.float32]:
        self.passes.append(piece)
        held = self.held.setdefault(piece.slot, [])
        assert piece.start <= len(held) and piece.tokens
        assert piece.start + len(piece.tokens) <= self.context
        if not self.hyperparameters.layers[0].attends and piece.start:
            assert piece.start == len(held), "convolutions remember the end only"
        held[piece.start :] = piece.tokens
        ends = range(len(held) - piece.wanted + 1, len(held) + 1)
        rows = [self._logits(held[:end]) for end in ends]
        return np.array(rows, np.float32).reshape(-1, len(self.tokenizer))

    def _logits(self, before: Sequence[int]) -> npt.NDArray[np.float32]:
        if self._script is not None:
            row = np.zeros(len(self.tokenizer), np.float32)
            row[next(self._script)] = 30
            return row
        seed = zlib.crc32(np.array(before, np.int64).tobytes())
        return np.random.default_rng(seed).normal(0, 3, len(self.tokenizer)).astype(np.float32)


def put_in_place(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """Makes ``model`` the one that commands open, whatever the file ``model.gguf`` in the current
    folder holds."""

    @contextmanager
    def opened(args: argparse.Namespace, path: Path) -> Iterator[FakeModel]:
        assert path == Path("model.gguf")
        yield model

    Path("model.gguf").touch()
    monkeypatch.setattr(engine_options, "opened", opened)
    monkeypatch.setattr(bench, "kind", lambda path: "language")
    return model
