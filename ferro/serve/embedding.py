"""An embedding model that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ferro.serve.encoder_lane import EncoderLane
from ferro.serve.lanes import Gate
from ferro.serve.served import Served
from ferro.serve.settings import Settings

if TYPE_CHECKING:
    from ferro.models.embedding_model import EmbeddingModel


class ServedEmbedding(Served):
    """Gives vectors of texts."""

    lane: EncoderLane
    word, modality = "input", "embeddings"

    def __init__(self, gate: Gate, model: EmbeddingModel, settings: Settings) -> None:
        super().__init__(EncoderLane(gate, model, settings.most_waiting), settings)

    def details(self) -> dict[str, Any]:
        return {"n_embd": self.model.out}
