"""An embedding model without a device: vectors that depend on an input's tokens alone."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ferro.models.embedding_model import EmbeddingModel
from ferro.models.gguf_metadata import Metadata
from ferro.models.packing import Input
from ferro.serve.encoder_lane import EncoderLane
from ferro.serve.jobs import Encoded, Encoding, Event, Failed, Job
from ferro.serve.lanes import Gate
from tests.models import vocabularies
from tests.serve.fakes import Alone


class FakeEncoder(EmbeddingModel):
    """As an embedding model, but for its passes, which can be slow or fail."""

    def __init__(
        self, context: int = 64, batch: int = 16, out: int = 8, dimensions: Any = ()
    ) -> None:
        self.context, self.batch = context, batch
        self.tokenizer = vocabularies.tokenizer("lfm2")
        made = SimpleNamespace(
            architecture="gemma-embedding2",
            vocabulary=len(self.tokenizer),
            out=out,
            context=context,
        )
        metadata = Metadata("encoder.gguf", vocabularies.metadata("lfm2"))
        self.hyperparameters: Any = made
        self.file: Any = SimpleNamespace(metadata=metadata, path=Path("encoder.gguf"), nbytes=0)
        self.device: Any = SimpleNamespace(info="a fake", memory=lambda: {"weights": 0})
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.passes_made: list[list[Input]] = []

    def forward(self, inputs: Sequence[Input]) -> Any:
        assert len(inputs) == 1 or sum(map(len, inputs)) <= self.batch
        time.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        self.passes_made.append(list(inputs))
        return np.concatenate([vector(each.tokens, self.out)[None] for each in inputs])

    def in_parts(self, inputs: Sequence[Input], seconds: float) -> Any:
        yield None
        yield None
        yield self.forward(inputs)

    def close(self) -> None:
        pass


def vector(tokens: Sequence[int], out: int = 8) -> Any:
    """What the fake gives for some tokens, float32 [out]."""
    seed = zlib.crc32(np.array(tokens, np.int64).tobytes())
    return np.random.default_rng(seed).normal(0, 1, out).astype(np.float32)


def encoder_engine(model: Any, most_waiting: int = 64, **more: Any) -> Alone:
    """An engine of one encoder."""
    gate = Gate()
    return Alone(gate, EncoderLane(gate, model, most_waiting), **more)


class HeardEncoding:
    """A job and what was told of it."""

    def __init__(self, lengths: Sequence[int], seed: int = 0, seconds: float | None = None) -> None:
        inputs = [Input(tuple(range(seed, seed + n))) for n in lengths]
        self.events: list[Event] = []
        self.job = Job(Encoding(tuple(inputs), seconds), self.events.append)

    @property
    def rows(self) -> Any:
        (found,) = self.events
        assert isinstance(found, Encoded)
        return np.concatenate(found.rows)

    @property
    def failed(self) -> Failed | None:
        return next((e for e in self.events if isinstance(e, Failed)), None)

    @property
    def right(self) -> bool:
        """Whether every vector is that of its input."""
        wanted = [vector(each.tokens) for each in self.job.task.inputs]
        return np.array_equal(self.rows, np.stack(wanted))
