"""An embedding model that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ferro.serve.encoder_lane import EncoderLane
from ferro.serve.lanes import Gate
from ferro.serve.served import Served
from ferro.serve.settings import Settings

if TYPE_CHECKING:
    from ferro.models.embedding_model import EmbeddingModel

SHORTENED = (512, 256, 128)  # dimensions that models were trained to be cut to


class ServedEmbedding(Served):
    """Gives vectors of texts."""

    lane: EncoderLane
    modality = "embeddings"

    def __init__(self, gate: Gate, model: EmbeddingModel, settings: Settings) -> None:
        seconds = settings.slice_seconds
        lane = EncoderLane(gate, model, settings.most_waiting, part_seconds=seconds)
        super().__init__(lane, settings)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Of vectors, all of them first."""
        return (self.model.out, *(n for n in SHORTENED if n < self.model.out))

    def details(self) -> dict[str, Any]:
        return {"n_embd": self.model.out, "dimensions": list(self.dimensions)}
