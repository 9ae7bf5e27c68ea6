"""A model that is served: what it is called, its tokenizer, the lane of its work."""

from __future__ import annotations

import asyncio
import time
from functools import cached_property
from typing import Any

from ferro.serve.errors import ApiError, bad
from ferro.serve.lanes import Lane
from ferro.serve.settings import Settings


class Served:
    """One model. ``modality`` is what comes out of it."""

    modality = "text"

    def __init__(self, lane: Lane, settings: Settings) -> None:
        self.lane, self.settings = lane, settings
        self.tokenizer = lane.model.tokenizer
        self.name: str = lane.model.file.path.stem
        self.created = int(time.time())

    @property
    def kind(self) -> str:
        return self.lane.kind

    @property
    def model(self) -> Any:
        """As it is now: a lost device is opened again."""
        return self.lane.model

    @property
    def names(self) -> tuple[str, ...]:
        """What the model answers to."""
        return (self.name, *self.settings.aliases)

    def check_name(self, name: str | None) -> None:
        """Raises ApiError for a model that is not here."""
        if name is not None and name not in self.names:
            raise no_model(name, self.names)

    async def encode(self, text: str, **how: bool) -> tuple[int, ...]:
        """Token ids, as the model's inputs are unless ``how`` says it."""
        return tuple(await asyncio.to_thread(self.tokenizer.encode, text, **how))

    async def encode_prompt(self, text: str, param: str) -> tuple[int, ...]:
        """Token ids of a prompt. Raises ApiError as ``ids`` does."""
        return await asyncio.to_thread(self.ids, text, param)

    def ids(self, text: str, param: str, what: str = "the prompt") -> tuple[int, ...]:
        """Token ids of ``what`` is a whole input. Raises ApiError for one that the context cannot
        hold, of a text that is much too long before it is encoded: the worst ones take seconds a
        megabyte."""
        least = self._least_tokens(text)
        if least > self.model.context:
            raise self._too_long(f"at least {least}", param, what)
        found = tuple(self.tokenizer.encode(text))
        self.check_length(found, param, what)
        return found

    def check_length(self, ids: tuple[int, ...], param: str, what: str = "the prompt") -> None:
        """Raises ApiError for a text that the context cannot hold, or that is empty."""
        if len(ids) > self.model.context:
            raise self._too_long(str(len(ids)), param, what)
        if not ids:
            raise bad(f"{what} has no tokens", param)

    def check_tokens(self, ids: list[int], param: str) -> tuple[int, ...]:
        """Ids that came in a request. Raises ApiError for those that are none."""
        count = len(self.tokenizer)
        strange = next((token for token in ids if not 0 <= token < count), None)
        if strange is not None:
            raise bad(f"there is no token {strange} (there are {count})"[:200], param)
        return tuple(ids)

    def describe(self) -> dict[str, Any]:
        """The model as ``/v1/models`` lists it."""
        made = self.model.hyperparameters
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "ferro",
            "aliases": list(self.settings.aliases),
            "root": self.name,
            "parent": None,
            "max_model_len": self.model.context,
            "architecture": {
                "name": made.architecture,
                "input_modalities": ["text"],
                "output_modalities": [self.modality],
            },
            "meta": {
                "vocab_type": self.tokenizer.vocabulary.model,
                "n_vocab": made.vocabulary,
                "n_ctx": self.model.context,
                "n_ctx_train": made.context,
                "size": self.model.file.nbytes,
                **self.details(),
            },
        }

    def details(self) -> dict[str, Any]:
        """What is told of this kind of model besides."""
        return {}

    def state(self) -> dict[str, Any]:
        """What ``/health`` tells of it."""
        return {"model": self.name, "waiting": self.lane.waiting, "totals": vars(self.lane.totals)}

    def _least_tokens(self, text: str) -> int:
        """A number of tokens that it cannot be fewer than; 0 for a text that may well fit."""
        size = len(text.encode("utf-8", "replace"))
        return size // self._longest if size > self.model.context else 0

    @cached_property
    def _longest(self) -> int:
        """Bytes of the longest token."""
        tokens = range(len(self.tokenizer))
        return max(len(self.tokenizer.piece(token, special=True)) for token in tokens)

    def _too_long(self, tokens: str, param: str, what: str) -> ApiError:
        said = f"{what} has {tokens} tokens, the context holds {self.model.context}"
        return bad(said, param, "context_length_exceeded")

    def close(self) -> None:
        """Give back what serving it has taken."""
        return


def no_model(name: str, names: tuple[str, ...]) -> ApiError:
    return ApiError(
        404,
        f"there is no model {name[:80]!r} here (there is {', '.join(names)})",
        param="model",
        code="model_not_found",
    )
