"""A language model that is served: its template, how it is asked, its prefix cache."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ferro.models.chat import ChatTemplate
from ferro.models.conversation import Conversation
from ferro.models.recommended import recommended
from ferro.models.renderer import TemplateError
from ferro.serve.bodies import dumped
from ferro.serve.errors import bad
from ferro.serve.grammars import LFM2_MARKS, Grammars
from ferro.serve.lanes import Gate
from ferro.serve.pacing import Pacing
from ferro.serve.prefixes import Prefixes
from ferro.serve.served import Served
from ferro.serve.settings import Settings
from ferro.serve.stream_lane import StreamLane

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

MOST_SYSTEMS = 64  # system messages whose tokens are remembered


class ServedLanguage(Served):
    """Answers chats and completions."""

    lane: StreamLane

    def __init__(self, gate: Gate, model: LanguageModel, settings: Settings) -> None:
        pacing = Pacing(settings.slice_seconds, settings.decode_share, model.most_rows)
        prefixes = Prefixes(model, settings.prefix_cache_bytes, settings.prefix_tails)
        lane = StreamLane(gate, model, pacing, prefixes, settings.most_waiting)
        super().__init__(lane, settings)
        self.template = ChatTemplate.of_model(model.file.metadata, model.tokenizer)
        self.recommended = recommended(model.file.metadata) | dict(settings.sampling)
        self.grammars = Grammars(model.tokenizer)
        self.is_lfm2 = LFM2_MARKS[0] in model.tokenizer.vocabulary.ids
        self._systems: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def close(self) -> None:
        self.template.close()

    async def render(self, conversation: Conversation) -> str:
        """The prompt of a conversation. Raises ApiError with what the template says."""
        try:
            return await asyncio.to_thread(self.template.render, conversation)
        except TemplateError as error:
            raise bad(str(error), "messages") from None

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

    def details(self) -> dict[str, Any]:
        return {"n_slots": self.model.slots}

    def state(self) -> dict[str, Any]:
        """What the lane does and has done."""
        lane, prefixes = self.lane, self.lane.prefixes
        return {
            **super().state(),
            "slots": {"total": self.model.slots, "active": lane.active},
            "context": self.model.context,
            "rates": {
                "prefill_tokens_per_second": lane.pacing.prefill_rate,
                "decode_pass_seconds": lane.pacing.decode_seconds,
            },
            "prefix_cache": {
                "entries": len(prefixes),
                "bytes": prefixes.nbytes,
                **vars(prefixes.counts),
            },
        }


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
