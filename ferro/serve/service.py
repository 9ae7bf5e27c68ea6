"""A model that is served: its engine, its template, what it is called, how it is asked."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ferro.models.chat import ChatTemplate
from ferro.models.conversation import Conversation
from ferro.models.recommended import recommended
from ferro.models.renderer import TemplateError
from ferro.serve.bodies import dumped
from ferro.serve.engine import Engine, Reopen
from ferro.serve.errors import ApiError, bad
from ferro.serve.grammars import LFM2_MARKS, Grammars
from ferro.serve.pacing import Pacing
from ferro.serve.prefixes import Prefixes
from ferro.serve.settings import Settings

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

MOST_SYSTEMS = 64  # system messages whose tokens are remembered


class Service:
    """Serves one model. ``start`` it and ``close`` it."""

    def __init__(
        self, model: LanguageModel, settings: Settings, reopen: Reopen | None = None
    ) -> None:
        """``reopen`` gives the model anew after its device was lost for the nth time."""
        self.settings = settings
        self.tokenizer = model.tokenizer
        self.name = model.file.path.stem
        self.created = int(time.time())
        self.template = ChatTemplate.of_model(model.file.metadata, model.tokenizer)
        self.recommended = recommended(model.file.metadata) | dict(settings.sampling)
        self.grammars = Grammars(model.tokenizer)
        self.is_lfm2 = LFM2_MARKS[0] in model.tokenizer.vocabulary.ids
        pacing = Pacing(settings.slice_seconds, settings.decode_share, model.most_rows)
        prefixes = Prefixes(model, settings.prefix_cache_bytes, settings.prefix_tails)
        self.engine = Engine(model, pacing, prefixes, settings.most_waiting, settings.warm, reopen)
        self._systems: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def start(self) -> None:
        self.engine.start()

    def close(self) -> None:
        self.engine.close()
        self.template.close()

    @property
    def model(self) -> LanguageModel:
        """As it is now: a lost device is opened again."""
        return self.engine.model

    @property
    def names(self) -> tuple[str, ...]:
        """What the model answers to."""
        return (self.name, *self.settings.aliases)

    def check_name(self, name: str | None) -> None:
        """Raises ApiError for a model that is not here."""
        if name is not None and name not in self.names:
            raise ApiError(
                404,
                f"there is no model {name[:80]!r} here (there is {', '.join(self.names)})",
                param="model",
                code="model_not_found",
            )

    async def render(self, conversation: Conversation) -> str:
        """The prompt of a conversation. Raises ApiError with what the template says."""
        try:
            return await asyncio.to_thread(self.template.render, conversation)
        except TemplateError as error:
            raise bad(str(error), "messages") from None

    async def encode(self, text: str, **how: bool) -> tuple[int, ...]:
        """Token ids, for generation as the defaults are."""
        return tuple(await asyncio.to_thread(self.tokenizer.encode, text, **how))

    async def encode_prompt(self, text: str, param: str) -> tuple[int, ...]:
        """Token ids of a prompt. Raises ApiError for one that the context cannot hold, of a text
        that is much too long before it is encoded: the worst ones take seconds a megabyte."""
        least = await asyncio.to_thread(self._least_tokens, text)
        if least > self.model.context:
            raise self._too_long(f"at least {least}", param)
        prompt = await self.encode(text)
        self.check_length(prompt, param)
        return prompt

    async def system_end(self, conversation: Conversation, prompt: tuple[int, ...]) -> int:
        """How many tokens of ``prompt`` are the system message and the tools, which other
        conversations may begin with too; 0 if there are none."""
        system = [m for m in conversation.messages[:1] if m.get("role") == "system"]
        if not (system or conversation.tools):
            return 0
        key = dumped([system, conversation.tools, conversation.variables])
        other = self._systems.pop(key, None)
        if other is None:
            messages = [*system, {"role": "user", "content": "\N{REPLACEMENT CHARACTER}"}]
            made = Conversation(messages, conversation.tools, variables=conversation.variables)
            other = await self.encode(await self.render(made))
        self._systems[key] = other
        if len(self._systems) > MOST_SYSTEMS:
            self._systems.popitem(last=False)
        return _shared(prompt, other)

    def check_length(self, prompt: tuple[int, ...], param: str) -> None:
        """Raises ApiError for a prompt that the context cannot hold, or that is empty."""
        if len(prompt) > self.model.context:
            raise self._too_long(str(len(prompt)), param)
        if not prompt:
            raise bad("the prompt has no tokens", param)

    def _least_tokens(self, text: str) -> int:
        """A number of tokens that it cannot be fewer than; 0 for a text that may well fit."""
        size = len(text.encode("utf-8", "replace"))
        return size // self._longest if size > self.model.context else 0

    @cached_property
    def _longest(self) -> int:
        """Bytes of the longest token."""
        tokens = range(len(self.tokenizer))
        return max(len(self.tokenizer.piece(token, special=True)) for token in tokens)

    def _too_long(self, tokens: str, param: str) -> ApiError:
        said = f"the prompt has {tokens} tokens, the context holds {self.model.context}"
        return bad(said, param, "context_length_exceeded")


def describe(service: Service) -> dict[str, Any]:
    """The model as ``/v1/models`` lists it."""
    made = service.model.hyperparameters
    return {
        "id": service.name,
        "object": "model",
        "created": service.created,
        "owned_by": "ferro",
        "aliases": list(service.settings.aliases),
        "root": service.name,
        "parent": None,
        "max_model_len": service.model.context,
        "architecture": {
            "name": made.architecture,
            "input_modalities": ["text"],
            "output_modalities": ["text"],
        },
        "meta": {
            "vocab_type": service.tokenizer.vocabulary.model,
            "n_vocab": made.vocabulary,
            "n_ctx": service.model.context,
            "n_ctx_train": made.context,
            "n_slots": service.model.slots,
            "size": service.model.file.nbytes,
        },
    }


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
