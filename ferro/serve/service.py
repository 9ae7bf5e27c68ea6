"""What is served by one process: models of several kinds, and the engine that runs them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferro.serve.decision import ServedDecision
from ferro.serve.embedding import ServedEmbedding
from ferro.serve.engine import Engine, Models, Reopen
from ferro.serve.errors import ApiError
from ferro.serve.lanes import Gate
from ferro.serve.language import ServedLanguage
from ferro.serve.served import Served, no_model
from ferro.serve.settings import Settings

KINDS: dict[str, Callable[[Gate, Any, Settings], Served]] = {
    "language": ServedLanguage,
    "embedding": ServedEmbedding,
    "decision": ServedDecision,
}


class Service:
    """Serves ``models``, one of a kind at most. ``start`` it and ``close`` it."""

    def __init__(self, models: Models, settings: Settings, reopen: Reopen | None = None) -> None:
        """``reopen`` gives all models anew after their device was lost for the nth time."""
        self.settings = settings
        gate = Gate()
        self._served = {
            kind: serve(gate, models[kind], settings)
            for kind, serve in KINDS.items()
            if kind in models
        }
        lanes = [each.lane for each in self._served.values()]
        self.engine = Engine(gate, lanes, settings.warm, reopen)

    def start(self) -> None:
        self.engine.start()

    def close(self) -> None:
        self.engine.close()
        for each in self.served:
            each.close()

    @property
    def served(self) -> tuple[Served, ...]:
        """All models."""
        return tuple(self._served.values())

    @property
    def device(self) -> Any:
        """Of all models, as it is now."""
        return self.served[0].model.device

    @property
    def language(self) -> ServedLanguage:
        """Raises ApiError where no such model is served."""
        found = self._of("language")
        assert isinstance(found, ServedLanguage)
        return found

    @property
    def embedding(self) -> ServedEmbedding:
        """Raises ApiError where no such model is served."""
        found = self._of("embedding")
        assert isinstance(found, ServedEmbedding)
        return found

    @property
    def decision(self) -> ServedDecision:
        """Raises ApiError where no such model is served."""
        if "decision" not in self._served:
            raise ApiError(501, "This model is not a decision model", code="not_supported")
        found = self._of("decision")
        assert isinstance(found, ServedDecision)
        return found

    def named(self, name: str | None) -> Served:
        """The model of a name, the first one without it. Raises ApiError."""
        for each in self.served:
            if name is None or name in each.names:
                return each
        assert name is not None
        raise no_model(name, tuple(name for each in self.served for name in each.names))

    def _of(self, kind: str) -> Served:
        if kind not in self._served:
            message = f"no {kind} model is served here"
            raise ApiError(501, message, code="not_supported")
        return self._served[kind]
