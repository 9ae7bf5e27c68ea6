"""``POST /v1/embeddings``: vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from functools import partial

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ferro.models import tasks
from ferro.models.loaded import BadOption
from ferro.models.packing import Input
from ferro.models.sequences import sequence
from ferro.models.vectors import Vectors, normalised
from ferro.serve import asking, bodies, replying
from ferro.serve.completions import is_token
from ferro.serve.embedding import ServedEmbedding
from ferro.serve.errors import bad
from ferro.serve.fields import Fields
from ferro.serve.jobs import Encoded, Encoding
from ferro.serve.parameters import Free, Parameter, Text, Whole
from ferro.serve.running import Running, attended

MOST_INPUTS = 4096
FLOAT, BASE64 = "float", "base64"
TOKENS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
TEXT = {"type": "string", "minLength": 1}
INPUT = Free(("input",), {"anyOf": [
    TEXT, TOKENS,
    {"type": "array", "minItems": 1, "maxItems": MOST_INPUTS, "items": {"anyOf": [TEXT, TOKENS]}},
]}, required=True)  # fmt: skip
DIMENSIONS = Whole(("dimensions",), 1)
FORMAT = Text(("encoding_format",), (FLOAT, BASE64))
TASK = Text(("task",))
EMBEDDING: tuple[Parameter, ...] = (
    asking.MODEL, INPUT, DIMENSIONS, FORMAT, TASK, asking.TIMEOUT,
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A request that was read: what to compute, and the form of the vectors."""

    encoding: Encoding
    dimensions: int
    base64: bool
    warnings: tuple[str, ...]


async def embeddings(request: Request) -> Response:
    service: ServedEmbedding = request.app.state.service.embedding
    fields = await bodies.read(request, service.settings.most_bytes, EMBEDDING)
    asked = await read(service, fields)
    running = Running(service.lane, [asked.encoding])
    request.state.running = running
    async with attended(running, request.receive):
        async for event in running.events():
            if isinstance(event, Encoded):
                # thousands of vectors take their time to be written
                body = await asyncio.to_thread(reply, service, asked, np.concatenate(event.rows))
    return Response(body, media_type=bodies.Json.media_type)


async def read(service: ServedEmbedding, fields: Fields) -> Asked:
    """Raises ApiError."""
    service.check_name(asking.MODEL.read(fields))
    given = inputs(fields)
    dimensions = DIMENSIONS.read(fields) or service.dimensions[0]
    if dimensions not in service.dimensions:
        known = ", ".join(map(str, service.dimensions))
        raise fields.wrong("dimensions", f"must be one of {known}, it is {dimensions}")
    wanted = FORMAT.read(fields)
    task = task_of(service, fields)
    seconds = asking.seconds(service, fields)
    warnings = asking.unknown(fields)

    def encoded() -> tuple[Input, ...]:
        return tuple(one(service, each, i, task) for i, each in enumerate(given))

    encoding = Encoding(await asyncio.to_thread(encoded), seconds)
    return Asked(encoding, dimensions, wanted == BASE64, warnings)


def inputs(fields: Fields) -> list[str | list[int]]:
    """A string, an array of token ids, or an array of either."""
    given = INPUT.read(fields)
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not given:
        raise fields.wrong("input", "must be a string, or an array of strings or of token ids")
    if all(map(is_token, given)):
        return [given]
    if len(given) > MOST_INPUTS:
        raise fields.wrong("input", f"has {len(given)} inputs (at most {MOST_INPUTS} in a request)")
    for i, each in enumerate(given):
        if not isinstance(each, str) and not (isinstance(each, list) and all(map(is_token, each))):
            raise fields.wrong("input", f"{i} must be a string or an array of token ids")
        if not each:
            raise fields.wrong("input", f"{i} is empty")
    return given


def task_of(service: ServedEmbedding, fields: Fields) -> tasks.Task:
    """What the vectors are for. Raises ApiError."""
    try:
        return tasks.task(service.model.hyperparameters.architecture, TASK.read(fields))
    except tasks.NoSuchTask as error:
        raise bad(str(error)[:400], "task") from None


def one(service: ServedEmbedding, given: str | list[int], number: int, task: tasks.Task) -> Input:
    """One input as the model takes it. Raises ApiError."""
    what = f"input {number}"
    if not isinstance(given, str):
        service.check_length(service.check_tokens(given, "input"), "input", what)
    try:
        return sequence(partial(service.ids, param="input", what=what), given, task)
    except BadOption as error:
        raise bad(str(error), "task") from None


def reply(service: ServedEmbedding, asked: Asked, rows: Vectors) -> bytes:
    """The body for vectors [n, out]."""
    vectors = normalised(rows[:, : asked.dimensions])
    data = [
        {"object": "embedding", "index": i, "embedding": packed(each) if asked.base64 else each}
        for i, each in enumerate(vectors if asked.base64 else vectors.tolist())
    ]
    count = asked.encoding.prompt_tokens
    return bodies.dumped(
        {
            "object": "list",
            "data": data,
            "model": service.name,
            "usage": {"prompt_tokens": count, "total_tokens": count},
            **replying.joined_warnings(asked.warnings),
        }
    )


def packed(vector: Vectors) -> str:
    """Its numbers as OpenAI's clients unpack them: little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
