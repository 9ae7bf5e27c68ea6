"""What is told of a server: ``/v1/models``, ``/health``, ``/ready``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro import __version__
from ferro.serve.bodies import Json
from ferro.serve.errors import ApiError
from ferro.serve.service import Service


async def models(request: Request) -> Response:
    service: Service = request.app.state.service
    return Json({"object": "list", "data": [each.describe() for each in service.served]})


async def one_model(request: Request) -> Response:
    service: Service = request.app.state.service
    return Json(service.named(request.path_params["name"]).describe())


async def health(request: Request) -> Response:
    """200 while the engine lives, whatever it is doing."""
    service: Service | None = request.app.state.service
    if service is None:
        raise loading()
    if not service.engine.alive:
        raise ApiError(503, "the engine has ended", code="broken")
    return Json({"status": "ok", "version": __version__, **state(service)})


async def ready(request: Request) -> Response:
    """200 while requests are taken."""
    service: Service | None = request.app.state.service
    if service is None:
        raise loading()
    if service.engine.closing or not service.engine.alive:
        raise ApiError(503, "the server is shutting down", code="closed")
    if service.engine.warming:
        raise ApiError(503, "Warming up", code="loading", headers={"Retry-After": "2"})
    return Json({"status": "ok"})


def loading() -> ApiError:
    return ApiError(503, "Loading model", code="loading", headers={"Retry-After": "5"})


def state(service: Service) -> dict[str, Any]:
    """What the engine does and has done: of the first model at the top, of each one by its kind."""
    models = {each.kind: each.state() for each in service.served}
    return {
        **service.served[0].state(),
        "device": str(service.device.info),
        "devices_lost": service.engine.losses,
        "models": models,
        "memory": service.device.memory(),
    }
