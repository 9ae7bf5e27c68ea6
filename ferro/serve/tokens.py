"""``POST /tokenize`` and ``POST /detokenize``, with llama.cpp's fields and vLLM's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro.serve import bodies
from ferro.serve.asking import MODEL
from ferro.serve.chat import TALK, conversation
from ferro.serve.completions import is_token
from ferro.serve.errors import bad
from ferro.serve.parameters import Flag, Items, Parameter, Text
from ferro.serve.replying import token_text
from ferro.serve.served import Served

CONTENT, PROMPT = Text(("content",)), Text(("prompt",))
SPECIAL = Flag(("add_special", "add_special_tokens"))
PARSED = Flag(("parse_special",), usual=True)
PIECES, STRINGS = Flag(("with_pieces",)), Flag(("return_token_strs",))
# of messages or a text: none of them is needed by itself
TOKENIZE: tuple[Parameter, ...] = (
    MODEL, CONTENT, PROMPT, SPECIAL, PARSED, PIECES, STRINGS,
    *(replace(parameter, required=False) for parameter in TALK),
)  # fmt: skip
IDS = Items(("tokens",), {"type": "integer", "minimum": 0}, required=True)
DETOKENIZE: tuple[Parameter, ...] = (MODEL, IDS)


async def tokenize(request: Request) -> Response:
    fields = await bodies.read(request, request.app.state.service.settings.most_bytes, TOKENIZE)
    service: Served = request.app.state.service.named(MODEL.read(fields))
    # llama.cpp adds no special tokens to `content` unless asked to, vLLM does to `prompt`
    content = CONTENT.read(fields)
    if "messages" in fields:
        text = await request.app.state.service.language.render(conversation(fields))
    else:
        text = content if content is not None else PROMPT.read(fields) or ""
        if content is None and "prompt" not in fields:
            raise bad("`content`, `prompt` or `messages` is needed", "content")
    special = SPECIAL.read(fields, content is None)
    parsed = PARSED.read(fields)
    ids = await service.encode(text, add_special=special, parse_special=parsed)
    found: dict[str, Any] = {
        "tokens": list(ids),
        "count": len(ids),
        "max_model_len": service.model.context,
    }
    if PIECES.read(fields):
        found["tokens"] = [piece(service, i) for i in ids]
    if STRINGS.read(fields):
        found["token_strs"] = [token_text(service.tokenizer, i)[0] for i in ids]
    return bodies.Json(found)


def piece(service: Served, token: int) -> dict[str, Any]:
    """A token as llama.cpp tells of it: its text, or its bytes where they are none."""
    data = service.tokenizer.piece(token, special=True)
    try:
        return {"id": token, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(data)}


async def detokenize(request: Request) -> Response:
    fields = await bodies.read(request, request.app.state.service.settings.most_bytes, DETOKENIZE)
    service: Served = request.app.state.service.named(MODEL.read(fields))
    ids = IDS.read(fields)
    if ids is None or not all(map(is_token, ids)):
        raise fields.wrong("tokens", "must be an array of token ids")
    try:
        text = service.tokenizer.decode(ids, special=True)
    except IndexError as error:
        raise bad(str(error)[:200], "tokens") from None
    return bodies.Json({"content": text, "prompt": text})
