"""``POST /v1/chat/completions`` and ``POST /apply-template``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro.models.completion import Finish
from ferro.models.conversation import Conversation
from ferro.serve import asking, bodies, forms, replying
from ferro.serve.asking import Delivery
from ferro.serve.errors import bad
from ferro.serve.fields import Fields
from ferro.serve.grammars import HERMES_MARKS
from ferro.serve.jobs import Ended, Task, Token
from ferro.serve.language import ServedLanguage
from ferro.serve.parameters import Flag, Items, Object, Parameter, Text, Whole
from ferro.serve.replying import EventStream
from ferro.serve.running import Running, attended
from ferro.serve.settings import REASONING_FORMATS
from ferro.serve.speech import Listener, Said, total
from ferro.serve.thinking import OPEN, Budget

MEDIA = ("image_url", "input_image", "input_audio", "video_url", "file")
CUT_OFF = "the reply ended while the model was still reasoning: give it more tokens"

PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "examples": ["system", "user", "assistant", "tool"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": PART}]},
        "reasoning_content": {"type": ["string", "null"]},
        "name": {"type": ["string", "null"]},
        "tool_call_id": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
    },
    "required": ["role", "content"],
}
MESSAGES = Items(("messages",), MESSAGE, 1, required=True)
TEMPLATE_VARIABLES = Object(("chat_template_kwargs",))
EFFORT = Text(("reasoning_effort",))
OPENS = Flag(("add_generation_prompt",), usual=True)
TALK: tuple[Parameter, ...] = (MESSAGES, forms.TOOLS, TEMPLATE_VARIABLES, EFFORT, OPENS)

REASONING = Text(("reasoning_format",), REASONING_FORMATS)
BUDGET = Whole(("thinking_budget", "thinking_budget_tokens", "reasoning_budget"), -1)
TOP_LOGPROBS = Whole(("top_logprobs",), 0, asking.MOST_LIKELY)
LOGPROBS = Flag(("logprobs",))
CHAT: tuple[Parameter, ...] = (
    *TALK, *asking.COMMON, *forms.FORM, REASONING, BUDGET, LOGPROBS, TOP_LOGPROBS,
)  # fmt: skip


@dataclass(frozen=True)
class Chat:
    """A request that was read."""

    task: Task
    delivery: Delivery
    splits: bool
    opened: bool
    tools: tuple[str, ...] = ()

    def listener(self) -> Listener:
        return Listener(self.splits, self.opened, self.tools)


async def chat_completions(request: Request) -> Response:
    service: ServedLanguage = request.app.state.service.language
    fields = await bodies.read(request, service.settings.most_bytes, CHAT)
    chat = await read(service, fields)
    running = Running(service.lane, [chat.task])
    request.state.running = running
    if chat.delivery.stream:
        return EventStream(running, chunks(service, chat, running))
    async with attended(running, request.receive):
        return bodies.Json(await whole(service, chat, running))


async def apply_template(request: Request) -> Response:
    service: ServedLanguage = request.app.state.service.language
    fields = await bodies.read(request, service.settings.most_bytes, TALK)
    return bodies.Json({"prompt": await service.render(conversation(fields))})


# ------------------------------------------------------------------------------- the request


async def read(service: ServedLanguage, fields: Fields) -> Chat:
    """Raises ApiError."""
    service.check_name(asking.MODEL.read(fields))
    lfm2 = HERMES_MARKS[0] not in service.template.source and service.is_lfm2
    form = await asyncio.to_thread(forms.read, fields, conversation(fields), service.grammars, lfm2)
    shown = forms.shown(service.tokenizer.vocabulary.ids, bool(form.names))
    made = asking.options(fields, service.recommended, len(service.tokenizer), shown)
    reasoning = REASONING.read(fields) or service.settings.reasoning_format
    budget = thinking_budget(service, fields)
    how: dict[str, Any] = {
        "choices": asking.choices(fields),
        "likely": likely(fields),
        "cached": asking.CACHED.read(fields),
        "seconds": asking.seconds(service, fields),
    }
    wanted = asking.delivery(fields)
    talk = form.conversation
    text = await service.render(talk)
    prompt = await service.encode_prompt(text, "messages")
    opened = text.rstrip().endswith(OPEN) and form.guides is None
    guide = form.guides
    if guide is None and budget is not None:
        guide = partial(Budget, service.tokenizer, budget, opened)
    task = Task(
        prompt,
        made,
        guide=guide,
        boundaries=(await service.system_end(talk, prompt),),
        tail=any(message["role"] in ("assistant", "tool") for message in talk.messages),
        **how,
    )
    return Chat(task, wanted, reasoning != "none", opened, form.names)


def thinking_budget(service: ServedLanguage, fields: Fields) -> int | None:
    """How many tokens of reasoning there may be; None for any number."""
    found = BUDGET.read(fields)
    if found is None:
        return service.settings.thinking_budget
    return None if found == -1 else found


def conversation(fields: Fields) -> Conversation:
    """The messages and tools of a request. Raises ApiError."""
    messages = MESSAGES.read(fields)
    if not messages:
        raise fields.wrong("messages", "must be an array of at least one message")
    for i, message in enumerate(messages):
        check_message(i, message)
    tools = forms.TOOLS.read(fields) or []
    variables = TEMPLATE_VARIABLES.read(fields)
    given = {} if variables is None else {name: variables.value(name) for name in variables.names()}
    effort = EFFORT.read(fields)
    if effort is not None:
        given.setdefault("reasoning_effort", effort)
    opens = OPENS.read(fields)
    return Conversation(messages, tools, opens, given)


def check_message(i: int, message: Any) -> None:
    """Raises ApiError for what is no message, and for media, which the model cannot take."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise bad(f"`messages[{i}]` must be an object with a role", f"messages[{i}]")
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in MEDIA:
            medium = kind.removeprefix("input_").removesuffix("_url")
            raise bad(f"this model has no {medium} input", f"messages[{i}]", "unsupported_content")


def likely(fields: Fields) -> int | None:
    """How many likely tokens are told of with each; None for nothing at all."""
    count = TOP_LOGPROBS.read(fields)
    if LOGPROBS.read(fields):
        return count or 0
    if count is not None and LOGPROBS.name in fields and count:
        raise fields.wrong("top_logprobs", "needs `logprobs` to be true")
    return count


# --------------------------------------------------------------------------------- the reply


async def whole(service: ServedLanguage, chat: Chat, running: Running) -> dict[str, Any]:
    """The body of a reply that is not streamed. Raises ApiError, Gone."""
    listeners = [chat.listener() for _ in range(running.choices)]
    said: list[list[Said]] = [[] for _ in listeners]
    logprobs: list[list[Any]] = [[] for _ in listeners]
    ends: dict[int, Finish] = {}
    async for event in running.events():
        if isinstance(event, Token):
            said[event.choice].append(listeners[event.choice].push(event.text))
            logprobs[event.choice] += known(service, event)
        elif isinstance(event, Ended):
            said[event.choice].append(listeners[event.choice].finish())
            ends[event.choice] = event.finish
    warnings = list(chat.delivery.warnings)
    if any(listener.thinks for listener in listeners):
        warnings.append(CUT_OFF)
    choices = []
    for i, parts in enumerate(said):
        message = total(parts)
        choice: dict[str, Any] = {"index": i, "message": message.message()}
        choice["logprobs"] = None if chat.task.likely is None else {"content": logprobs[i]}
        choice["finish_reason"] = reason(ends[i], bool(message.calls))
        choices.append(choice)
    return {
        **replying.identity("chat.completion", "chatcmpl", service.name),
        "choices": choices,
        "usage": replying.usage(running),
        "timings": replying.timings(running),
        **replying.joined_warnings(warnings),
    }


async def chunks(service: ServedLanguage, chat: Chat, running: Running) -> AsyncIterator[bytes]:
    """The events of a streamed reply. Raises ApiError, Gone."""
    head = replying.identity("chat.completion.chunk", "chatcmpl", service.name)
    listeners = [chat.listener() for _ in range(running.choices)]
    for i in range(running.choices):
        yield chunk(head, i, {"role": "assistant", "content": ""})
    left, extra = running.choices, {}
    async for event in running.events(service.settings.ping_seconds):
        if event is None:
            yield replying.PING
            continue
        listener = listeners[event.choice]
        if isinstance(event, Token):
            said, entries = listener.push(event.text), known(service, event)
        else:
            said, entries = listener.finish(), []
        if said or entries:
            yield chunk(head, event.choice, delta(listener, said), entries)
        if isinstance(event, Ended):
            left -= 1
            if not left:
                cut = (CUT_OFF,) if any(each.thinks for each in listeners) else ()
                extra = replying.joined_warnings([*chat.delivery.warnings, *cut])
                extra |= {"timings": replying.timings(running)}
            why = reason(event.finish, bool(listener.calls))
            yield chunk(head, event.choice, {}, [], why, extra)
    if chat.delivery.usage:
        yield replying.event({**head, "choices": [], "usage": replying.usage(running)})


def chunk(
    head: Mapping[str, Any],
    choice: int,
    delta: Mapping[str, Any],
    logprobs: list[Any] | None = None,
    finish: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    found: dict[str, Any] = {"index": choice, "delta": delta, "finish_reason": finish}
    if logprobs:
        found["logprobs"] = {"content": logprobs}
    return replying.event({**head, "choices": [found], **(extra or {})})


def delta(listener: Listener, said: Said) -> dict[str, Any]:
    """What a chunk adds; counts the calls."""
    found = said.delta(listener.calls)
    listener.calls += len(said.calls)
    return found


def known(service: ServedLanguage, token: Token) -> list[dict[str, Any]]:
    """The entry of a token in ``logprobs.content``, if it is wanted and the token is text."""
    if token.likely is None or token.id in service.tokenizer.vocabulary.ends:
        return []
    return [replying.chat_logprob(service.tokenizer, token.id, token.likely)]


def reason(finish: Finish, calls: bool) -> str:
    found = replying.REASONS[finish]
    return "tool_calls" if calls and found == "stop" else found
