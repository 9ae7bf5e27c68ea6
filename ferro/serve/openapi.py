"""``GET /openapi.json``: the server's own description, made from its routes and from the tables by
which requests are read (OpenAPI 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferro import __version__
from ferro.serve import asking, chat, completions, embeddings, parameters, systemone, tokens
from ferro.serve.bodies import Json
from ferro.serve.parameters import Parameter, Schema

# What a POST to a path takes; also without /v1.
BODIES: dict[str, Sequence[Parameter]] = {
    "/v1/chat/completions": chat.CHAT,
    "/v1/completions": completions.COMPLETION,
    "/v1/embeddings": embeddings.EMBEDDING,
    "/apply-template": chat.TALK,
    "/v1/systemone": systemone.SYSTEMONE,
    "/tokenize": tokens.TOKENIZE,
    "/detokenize": tokens.DETOKENIZE,
}
NOT_JSON = {"/metrics": "text/plain", "/chat": "text/html"}
READING = {401: "no such key", 404: "no such model", 501: "not installed", 503: "not now"}
SERVING = {
    400: "makes no sense",
    **READING,
    408: "came too slowly",
    413: "too large",
    500: "numbers that are none",
    504: "took too long",
}
WORD: Schema = {"type": ["string", "null"]}
ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": WORD,
                "code": WORD,
            },
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}

# of llama.cpp's own endpoints, but for what is refused before them
REFUSAL: Schema = {
    "anyOf": [
        {"$ref": "#/components/schemas/Error"},
        {
            "type": "object",
            "properties": {
                "error": {
                    "type": "object",
                    "properties": {
                        "code": {"type": "integer"},
                        "message": {"type": "string"},
                        "type": {"type": "string"},
                    },
                    "required": ["code", "message", "type"],
                    "additionalProperties": False,
                }
            },
            "required": ["error"],
            "additionalProperties": False,
        },
    ]
}


async def openapi(request: Request) -> Response:
    return Json(document(request.app.routes))


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """What an application with these routes can be asked."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            verb = "post" if "POST" in (route.methods or ()) else "get"
            path = route.path.replace(":path}", "}")
            paths[path] = {verb: operation(route.path, verb)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ferro", "version": __version__},
        "paths": paths,
        "security": [{}, {"key": []}],
        "components": {
            "schemas": {"Error": ERROR, "Refusal": REFUSAL},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation(path: str, verb: str) -> dict[str, Any]:
    """One method of a path."""
    table = BODIES.get(path) or BODIES.get(f"/v1{path}") or ()
    found: dict[str, Any] = {"responses": responses(path, SERVING if verb == "post" else READING)}
    if verb == "post":
        content = {"application/json": {"schema": parameters.body(table)}}
        found["requestBody"] = {"required": True, "content": content}
    if asking.STREAM in table:
        found["responses"]["200"]["content"]["text/event-stream"] = {}
    if "{name" in path:
        schema = {"type": "string", "minLength": 1}
        found["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": schema}]
    return found


def responses(path: str, errors: Mapping[int, str]) -> dict[str, Any]:
    """A good one, and those that tell what is wrong."""
    good: dict[str, Any] = {NOT_JSON[path]: {}} if path in NOT_JSON else {"application/json": {}}
    kind = "Refusal" if path.endswith("/systemone") else "Error"
    wrong = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind}"}}}
    return {
        "200": {"description": "as it was asked for", "content": good},
        **{str(status): {"description": text, "content": wrong} for status, text in errors.items()},
    }
