"""A server process on a model without a device: ``python -m tests.serve.served_fake SECONDS
[KEYS]``. Passes take so long; KEYS is a file of API keys."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ferro.serve import protocol
from ferro.serve.keys import Keys
from ferro.serve.server import Process
from ferro.serve.settings import Settings
from tests.serve.fake_decider import ServedDecider
from tests.serve.fake_encoder import FakeEncoder
from tests.serve.fakes import FakeModel

HEAD_SECONDS = 2.0


class Talkative(FakeModel):
    """Ends when it must."""

    def _logits(self, before: Sequence[int]) -> Any:
        row = super()._logits(before)
        row[list(self.tokenizer.vocabulary.ends)] -= 30
        return row


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    protocol.HEAD_SECONDS = HEAD_SECONDS
    model = Talkative(context=2000, slots=2)
    model.seconds = float(sys.argv[1])
    settings = Settings(shutdown_seconds=0.5, slice_seconds=0.02, most_waiting=32)
    keys = Keys(file=sys.argv[2] if len(sys.argv) > 2 else None)
    models: dict[str, Any] = {"language": model, "embedding": FakeEncoder(out=256)}
    models["decision"] = ServedDecider()
    Process(lambda losses: nullcontext(models), settings, keys).run("127.0.0.1", 0)
