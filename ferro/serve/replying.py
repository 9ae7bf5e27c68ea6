"""What replies have in common: identities, usage, timings, reasons, likelihoods, streams."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ferro import __version__
from ferro.models.completion import Finish
from ferro.models.tokenizer import Tokenizer
from ferro.serve.bodies import dumped
from ferro.serve.errors import ApiError
from ferro.serve.logprobs import Likely
from ferro.serve.running import Gone, Running, attended

LEAST_LOGPROB = -9999.0  # JSON has no infinities
REASONS = {
    Finish.END: "stop",
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.CONTEXT: "length",
}
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def identity(kind: str, prefix: str, model: str) -> dict[str, Any]:
    """The fields that every body and every chunk of a reply begins with."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": f"ferro-{__version__}",
    }


def usage(running: Running) -> dict[str, Any]:
    """Tokens of all jobs of a request."""
    prompt = sum(job.task.prompt_tokens for job in running.jobs)
    made = sum(job.clock.tokens for job in running.jobs)
    cached = sum(job.clock.cached_tokens for job in running.jobs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def timings(running: Running) -> Mapping[str, Any]:
    """Those of the first job."""
    job = running.jobs[0]
    return job.clock.timings(job.task.prompt_tokens)


def token_text(tokenizer: Tokenizer, token: int) -> tuple[str, list[int]]:
    """The text of a token, as far as it is one, and its bytes."""
    data = tokenizer.piece(token, special=True)
    return data.decode("utf-8", "replace"), list(data)


def logprob(value: float) -> float:
    return max(value, LEAST_LOGPROB)


def chat_logprob(tokenizer: Tokenizer, token: int, known: Likely) -> dict[str, Any]:
    """A token's entry in ``logprobs.content``."""

    def entry(i: int, value: float) -> dict[str, Any]:
        text, data = token_text(tokenizer, i)
        return {"token": text, "logprob": logprob(value), "bytes": data}

    top = [entry(i, value) for i, value in known.top]
    return {**entry(token, known.logprob), "top_logprobs": top}


def event(content: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dumped(content) + b"\n\n"


class EventStream(Response):
    """A reply in server-sent events. Gives its request up when the client leaves; what goes wrong
    underway becomes an event."""

    media_type = "text/event-stream"

    def __init__(self, running: Running, chunks: AsyncIterator[bytes]) -> None:
        self.status_code, self.background = 200, None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._running, self._chunks = running, chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with attended(self._running, receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                async for chunk in self._chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                last = DONE
            except ApiError as error:
                last = event(error.body()) + DONE
            except Gone:
                return
            await send({"type": "http.response.body", "body": last, "more_body": False})


def joined_warnings(warnings: Sequence[str]) -> dict[str, Any]:
    """The field that tells them, if there are any."""
    return {"warnings": list(warnings)} if warnings else {}
