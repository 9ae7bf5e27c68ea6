"""A decision model that is served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ferro.models.decisions import requests
from ferro.models.decisions.deciding import Asked
from ferro.models.packing import Input
from ferro.serve.bodies import document
from ferro.serve.encoder_lane import EncoderLane
from ferro.serve.lanes import Gate
from ferro.serve.served import Served
from ferro.serve.settings import Settings

if TYPE_CHECKING:
    from ferro.models.decision_model import DecisionModel


class ServedDecision(Served):
    """Answers typed questions."""

    lane: EncoderLane
    modality = "decisions"

    def __init__(self, gate: Gate, model: DecisionModel, settings: Settings) -> None:
        seconds = settings.slice_seconds
        lane = EncoderLane(gate, model, settings.most_waiting, sample, seconds)
        super().__init__(lane, settings)
        self.prompts = model.prompts
        self.temperatures = model.temperatures

    async def asked(self, body: bytes) -> Asked:
        """What a request of megabytes asks is found in a thread of its own. Raises ApiError,
        DecisionError."""
        return await asyncio.to_thread(
            lambda: Asked.of(requests.read(document(body)), self.prompts)
        )


def sample(length: int) -> Input:
    """A question of yes or no, to warm up with."""
    return Input((0,) * length, (0, 1) if length > 1 else (0,), kind=2)
