"""The application: routes, and one shape for every error."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferro.models.renderer import TemplateError
from ferro.serve import (
    chat,
    completions,
    embeddings,
    info,
    metrics,
    openapi,
    page,
    systemone,
    tokens,
)
from ferro.serve.access_log import Logged
from ferro.serve.bodies import Json
from ferro.serve.errors import ApiError
from ferro.serve.keys import OPEN_PATHS, Guarded, Keys
from ferro.serve.running import Gone
from ferro.serve.service import Service
from ferro.serve.settings import Settings

log = logging.getLogger("ferro.serve")
Endpoint = Callable[[Request], Awaitable[Response]]

# What needs the model; each also goes without /v1, as llama.cpp's server has it.
SERVED: dict[str, tuple[str, Endpoint]] = {
    "/v1/chat/completions": ("POST", chat.chat_completions),
    "/chat/completions": ("POST", chat.chat_completions),
    "/v1/completions": ("POST", completions.completions),
    "/v1/embeddings": ("POST", embeddings.embeddings),
    "/embeddings": ("POST", embeddings.embeddings),
    "/apply-template": ("POST", chat.apply_template),
    "/tokenize": ("POST", tokens.tokenize),
    "/detokenize": ("POST", tokens.detokenize),
    "/v1/systemone": ("POST", systemone.systemone),
    "/systemone": ("POST", systemone.systemone),
    "/v1/models": ("GET", info.models),
    "/models": ("GET", info.models),
    "/v1/models/{name:path}": ("GET", info.one_model),
    "/metrics": ("GET", metrics.metrics),
}
ALWAYS: dict[str, tuple[str, Endpoint]] = {
    "/health": ("GET", info.health),
    "/v1/health": ("GET", info.health),
    "/ready": ("GET", info.ready),
    "/chat": ("GET", page.chat_page),
    "/openapi.json": ("GET", openapi.openapi),
}


def make_app(
    service: Service | None = None, settings: Settings | None = None, keys: Keys | None = None
) -> Starlette:
    """The application for a service, which may be put into ``app.state.service`` later: until then
    it says that the model is being loaded. Raises BadKeys, OSError."""
    settings = settings or (service.settings if service else Settings())
    routes = [Route(path, loaded(end), methods=[verb]) for path, (verb, end) in SERVED.items()]
    routes += [Route(path, end, methods=[verb]) for path, (verb, end) in ALWAYS.items()]
    app = Starlette(
        routes=routes,
        middleware=middleware(settings, Keys() if keys is None else keys),
        exception_handlers={
            ApiError: api_error,
            TemplateError: template_error,
            HTTPException: http_error,
            Gone: gone,
            Exception: unexpected,
        },
    )
    app.state.service = app.state.metrics = None
    if service is not None:
        put_service(app, service)
    return app


def put_service(app: Starlette, service: Service) -> None:
    """From now on the application serves it."""
    with suppress(ImportError):
        app.state.metrics = metrics.Metrics(service)
    app.state.service = service


def middleware(settings: Settings, keys: Keys) -> list[Middleware]:
    """Around every request, the outermost first: a preflight needs no key."""
    found = [Middleware(Logged)]
    if settings.cors_origins:
        found.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
            )
        )
    open_paths = (*OPEN_PATHS, "/metrics") if settings.metrics_open else OPEN_PATHS
    return [*found, Middleware(Guarded, keys=keys, open_paths=open_paths)]


def loaded(endpoint: Endpoint) -> Endpoint:
    """The endpoint, once the model is there."""

    async def guarded(request: Request) -> Response:
        if request.app.state.service is None:
            raise info.loading()
        return await endpoint(request)

    return guarded


async def api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return Json(error.body(), error.status, headers=error.headers)


async def template_error(request: Request, error: Exception) -> Response:
    return await api_error(request, ApiError(400, str(error)))


async def http_error(request: Request, error: Exception) -> Response:
    """Errors of routing."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        found = ApiError(404, f"there is nothing at {path}", code="not_found")
    elif error.status_code == 405:
        message = f"{request.method} is not for {path}"
        found = ApiError(405, message, code="method_not_allowed", headers=error.headers)
    else:
        found = ApiError(error.status_code, error.detail, headers=error.headers)
    return await api_error(request, found)


async def gone(request: Request, error: Exception) -> Response:
    """Nobody will read this."""
    return Response(status_code=499)


async def unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return await api_error(
        request, ApiError(500, "something went wrong in the server; see its log")
    )
