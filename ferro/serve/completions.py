"""``POST /v1/completions``: text that goes on from a prompt as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro.serve import asking, bodies, replying
from ferro.serve.asking import Delivery
from ferro.serve.fields import Fields
from ferro.serve.jobs import Ended, Task, Token
from ferro.serve.language import ServedLanguage
from ferro.serve.parameters import Flag, Free, Parameter, Whole
from ferro.serve.replying import EventStream, token_text
from ferro.serve.running import Running, attended

MOST_PROMPTS = 64
MOST_LIKELY = 5
USUAL_TOKENS = 16  # OpenAI's default

IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PROMPT = Free(("prompt",), {"anyOf": [
    {"type": "string"}, IDS,
    {"type": "array", "items": {"anyOf": [{"type": "string"}, IDS]}, "minItems": 1,
     "maxItems": MOST_PROMPTS},
]}, required=True)  # fmt: skip
BEST = Whole(("best_of",), 1)
LOGPROBS = Whole(("logprobs",), 0, MOST_LIKELY)
ECHO = Flag(("echo",))
COMPLETION: tuple[Parameter, ...] = (PROMPT, *asking.COMMON, BEST, LOGPROBS, ECHO)


@dataclass(frozen=True)
class Asked:
    """A request that was read; ``echoes`` are the prompts' texts, if they are to be repeated."""

    tasks: list[Task]
    delivery: Delivery
    choices: int
    echoes: list[str] | None

    def echo(self, choice: int) -> str:
        return "" if self.echoes is None else self.echoes[choice // self.choices]


async def completions(request: Request) -> Response:
    service: ServedLanguage = request.app.state.service.language
    fields = await bodies.read(request, service.settings.most_bytes, COMPLETION)
    asked = await read(service, fields)
    running = Running(service.lane, asked.tasks)
    request.state.running = running
    if asked.delivery.stream:
        return EventStream(running, chunks(service, asked, running))
    async with attended(running, request.receive):
        return bodies.Json(await whole(service, asked, running))


# ------------------------------------------------------------------------------- the request


async def read(service: ServedLanguage, fields: Fields) -> Asked:
    """Raises ApiError."""
    service.check_name(asking.MODEL.read(fields))
    given = prompts(fields)
    usual = dict(service.settings.sampling)
    made = asking.options(fields, usual, len(service.tokenizer), default_most=USUAL_TOKENS)
    choices = asking.choices(fields)
    if (BEST.read(fields) or choices) > choices:
        raise fields.wrong("best_of", "is not supported here (give `n`)")
    likely = LOGPROBS.read(fields)
    echo = ECHO.read(fields)
    if echo and likely is not None:
        raise fields.wrong("echo", "cannot be had with `logprobs` here")
    how: dict[str, Any] = {
        "choices": choices,
        "likely": likely,
        "cached": asking.CACHED.read(fields),
        "seconds": asking.seconds(service, fields),
    }
    wanted = asking.delivery(fields)
    tasks = []
    for prompt in given:
        ids = await tokens(service, prompt)
        tasks.append(Task(ids, made, **how))
    echoes = [service.tokenizer.decode(task.prompt) for task in tasks] if echo else None
    return Asked(tasks, wanted, choices, echoes)


def prompts(fields: Fields) -> list[str | list[int]]:
    """A string, an array of token ids, or an array of either."""
    given = PROMPT.read(fields)
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise fields.wrong("prompt", "must be a string, an array of strings or of token ids")
    if all(is_token(each) for each in given):
        return [given]
    if len(given) > MOST_PROMPTS:
        raise fields.wrong("prompt", f"has {len(given)} prompts (at most {MOST_PROMPTS})")
    for each in given:
        if not isinstance(each, str) and not (isinstance(each, list) and all(map(is_token, each))):
            raise fields.wrong("prompt", "must be strings or arrays of token ids")
    return given


def is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


async def tokens(service: ServedLanguage, prompt: str | list[int]) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return await service.encode_prompt(prompt, "prompt")
    ids = service.check_tokens(prompt, "prompt")
    service.check_length(ids, "prompt")
    return ids


# --------------------------------------------------------------------------------- the reply


@dataclass
class Written:
    """A choice so far."""

    text: str = ""
    finish: str | None = None
    tokens: list[Token] = field(default_factory=list)


async def whole(service: ServedLanguage, asked: Asked, running: Running) -> dict[str, Any]:
    """The body of a reply that is not streamed. Raises ApiError, Gone."""
    written = [Written(asked.echo(i)) for i in range(running.choices)]
    async for event in running.events():
        if isinstance(event, Token):
            written[event.choice].text += event.text
            written[event.choice].tokens.append(event)
        elif isinstance(event, Ended):
            written[event.choice].finish = replying.REASONS[event.finish]
    choices = []
    for i, each in enumerate(written):
        told = logprobs(service, each.tokens, 0)
        choices.append(
            {"index": i, "text": each.text, "logprobs": told, "finish_reason": each.finish}
        )
    return {
        **replying.identity("text_completion", "cmpl", service.name),
        "choices": choices,
        "usage": replying.usage(running),
        "timings": replying.timings(running),
        **replying.joined_warnings(asked.delivery.warnings),
    }


async def chunks(service: ServedLanguage, asked: Asked, running: Running) -> AsyncIterator[bytes]:
    """The events of a streamed reply. Raises ApiError, Gone."""
    head = replying.identity("text_completion", "cmpl", service.name)
    offsets = [0] * running.choices

    def chunk(choice: int, text: str, told: Any, finish: str | None, **extra: Any) -> bytes:
        found = {"index": choice, "text": text, "logprobs": told, "finish_reason": finish}
        return replying.event({**head, "choices": [found], **extra})

    for i in range(running.choices):
        if asked.echo(i):
            yield chunk(i, asked.echo(i), None, None)
    left = running.choices
    async for event in running.events(service.settings.ping_seconds):
        if event is None:
            yield replying.PING
        elif isinstance(event, Token):
            told = logprobs(service, [event], offsets[event.choice])
            offsets[event.choice] += len(token_text(service.tokenizer, event.id)[0])
            if event.text or told:
                yield chunk(event.choice, event.text, told, None)
        elif isinstance(event, Ended):
            left -= 1
            extra = {} if left else replying.joined_warnings(asked.delivery.warnings)
            extra |= {} if left else {"timings": replying.timings(running)}
            yield chunk(event.choice, "", None, replying.REASONS[event.finish], **extra)
    if asked.delivery.usage:
        yield replying.event({**head, "choices": [], "usage": replying.usage(running)})


def logprobs(service: ServedLanguage, made: list[Token], offset: int) -> dict[str, Any] | None:
    """The likelihoods of tokens in the schema of completions, the first one's text at ``offset``;
    None if they are not wanted."""
    tokenizer = service.tokenizer
    known = [each for each in made if each.likely and each.id not in tokenizer.vocabulary.ends]
    if not known:
        return None
    found: dict[str, list[Any]] = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }
    for each in known:
        assert each.likely is not None
        text = token_text(tokenizer, each.id)[0]
        found["tokens"].append(text)
        found["token_logprobs"].append(replying.logprob(each.likely.logprob))
        found["top_logprobs"].append(
            {token_text(tokenizer, i)[0]: replying.logprob(p) for i, p in each.likely.top}
        )
        found["text_offset"].append(offset)
        offset += len(text)
    return found
