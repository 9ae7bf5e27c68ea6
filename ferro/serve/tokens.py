"""``POST /tokenize`` and ``POST /detokenize``, with llama.cpp's fields and vLLM's."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro.serve import bodies
from ferro.serve.chat import conversation
from ferro.serve.completions import is_token
from ferro.serve.errors import bad
from ferro.serve.replying import token_text
from ferro.serve.service import Service


async def tokenize(request: Request) -> Response:
    service: Service = request.app.state.service
    fields = await bodies.read(request, service.settings.most_bytes)
    service.check_name(fields.text("model"))
    # llama.cpp adds no special tokens to `content` unless asked to, vLLM does to `prompt`
    content = fields.text("content")
    if "messages" in fields:
        text = await service.render(conversation(fields))
    else:
        text = content if content is not None else fields.text("prompt") or ""
        if content is None and "prompt" not in fields:
            raise bad("`content`, `prompt` or `messages` is needed", "content")
    special = fields.flag("add_special", "add_special_tokens", default=content is None)
    parsed = fields.flag("parse_special", default=True)
    ids = await service.encode(text, add_special=special, parse_special=parsed)
    found: dict[str, Any] = {
        "tokens": list(ids),
        "count": len(ids),
        "max_model_len": service.model.context,
    }
    if fields.flag("with_pieces"):
        found["tokens"] = [piece(service, i) for i in ids]
    if fields.flag("return_token_strs"):
        found["token_strs"] = [token_text(service.tokenizer, i)[0] for i in ids]
    return bodies.Json(found)


def piece(service: Service, token: int) -> dict[str, Any]:
    """A token as llama.cpp tells of it: its text, or its bytes where they are none."""
    data = service.tokenizer.piece(token, special=True)
    try:
        return {"id": token, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(data)}


async def detokenize(request: Request) -> Response:
    service: Service = request.app.state.service
    fields = await bodies.read(request, service.settings.most_bytes)
    service.check_name(fields.text("model"))
    ids = fields.items("tokens")
    if ids is None or not all(map(is_token, ids)):
        raise fields.wrong("tokens", "must be an array of token ids")
    try:
        text = service.tokenizer.decode(ids, special=True)
    except IndexError as error:
        raise bad(str(error)[:200], "tokens") from None
    return bodies.Json({"content": text, "prompt": text})
