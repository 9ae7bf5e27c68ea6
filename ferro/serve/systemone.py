"""``POST /v1/systemone``: typed questions about a state, with llama.cpp's fields and errors."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro.models.decisions.errors import DecisionError
from ferro.serve import bodies
from ferro.serve.errors import ApiError
from ferro.serve.jobs import Encoded, Encoding
from ferro.serve.parameters import Free, Items, Parameter
from ferro.serve.running import Running, attended
from ferro.serve.service import Service


def question(kind: str, criteria: dict[str, Any], needed: bool = True) -> dict[str, Any]:
    """The schema of a question of a type."""
    fields = {
        "type": {"const": kind},
        "instructions": {"type": ["string", "number", "boolean", "array", "object"]},
        "criteria": criteria,
    }
    required = ["type", "instructions", *(["criteria"] if needed else [])]
    return {"type": "object", "properties": fields, "required": required}


QUESTIONS = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "anyOf": [
            question("noul", {"type": ["object", "null"]}, needed=False),
            question("choice", {"type": "object", "minProperties": 1, "maxProperties": 255}),
            question("score", {"type": "array", "minItems": 2, "maxItems": 10}),
        ]
    },
}
SYSTEMONE: tuple[Parameter, ...] = (
    Free(("state",), required=True),
    Free(("questions",), required=True, like=QUESTIONS),
    Items(("files",)),
    Items(("images",)),
    Free(("videos",)),
    Free(("model",)),
)


class Failure(ApiError):
    """An error as llama.cpp's server has it: its code is the status."""

    def __init__(self, error: ApiError | DecisionError) -> None:
        headers = error.headers if isinstance(error, ApiError) else None
        super().__init__(error.status, error.message, headers=headers)
        known: str = super().body()["error"]["type"]
        self._kind = error.kind if isinstance(error, DecisionError) else known

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.status, "message": self.message, "type": self._kind}}


async def systemone(request: Request) -> Response:
    try:
        return bodies.Json(await reply(request))
    except (ApiError, DecisionError) as error:
        raise Failure(error) from None


async def reply(request: Request) -> dict[str, Any]:
    """The body of the reply. Raises ApiError, DecisionError, Gone."""
    service: Service = request.app.state.service
    served = service.decision
    asked = await served.asked(await bodies.received(request, service.settings.most_bytes))
    running = Running(served.lane, [Encoding(asked.inputs, service.settings.request_seconds)])
    request.state.running = running
    async with attended(running, request.receive):
        async for event in running.events():
            if isinstance(event, Encoded):
                scores = [rows.reshape(-1) for rows in event.rows]
                return asked.reply(served.name, scores, served.temperatures)
    raise AssertionError("an encoding ends with its rows")
