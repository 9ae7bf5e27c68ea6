"""Bodies of requests and replies: JSON within limits, whatever it is that was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ferro.models.documents import BadDocument, parse
from ferro.serve.errors import ApiError, bad
from ferro.serve.fields import Fields, kind
from ferro.serve.parameters import Parameter, check

BODY_SECONDS = 120.0  # in which a whole body has to come


class Json(Response):
    """A reply. Lone surrogates, which UTF-8 does not have, become question marks."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumped(content)


def dumped(content: Any) -> bytes:
    """``content`` as JSON on one line."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


async def read(request: Request, most: int, table: Sequence[Parameter]) -> Fields:
    """The object that a request of at most ``most`` bytes carries, with the fields of ``table``,
    and perhaps others. Raises ApiError."""
    fields = Fields(document(await received(request, most)))
    check(fields, table)
    return fields


def document(data: bytes) -> dict[str, Any]:
    """The object that a body is. Raises ApiError."""
    try:
        found = parse(data)
    except BadDocument as error:
        raise bad(f"the body {error}") from None
    if not isinstance(found, dict):
        raise bad(f"the body must be a JSON object, it is {kind(found)}")
    return found


async def received(request: Request, most: int) -> bytes:
    """A body of at most ``most`` bytes. Raises ApiError."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:20]) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise _too_large(most)
                parts.append(chunk)
    except TimeoutError:
        said = f"the body did not come within {BODY_SECONDS:g} s"
        raise ApiError(408, said, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise bad("the client is gone") from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    # what is left of the body is not read: the connection cannot be used again
    return ApiError(413, f"the body is larger than {most} bytes", headers={"Connection": "close"})
