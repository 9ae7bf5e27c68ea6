"""What is told of a server: ``/v1/models``, ``/health``, ``/ready``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro import __version__
from ferro.serve.bodies import Json
from ferro.serve.errors import ApiError
from ferro.serve.service import Service, describe


async def models(request: Request) -> Response:
    service: Service = request.app.state.service
    return Json({"object": "list", "data": [describe(service)]})


async def one_model(request: Request) -> Response:
    service: Service = request.app.state.service
    service.check_name(request.path_params["name"])
    return Json(describe(service))


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
    """What the engine does and has done."""
    engine, prefixes = service.engine, service.engine.prefixes
    return {
        "model": service.name,
        "device": str(service.model.device.info),
        "devices_lost": engine.losses,
        "slots": {"total": service.model.slots, "active": engine.active},
        "waiting": engine.waiting,
        "context": service.model.context,
        "totals": vars(engine.totals),
        "rates": {
            "prefill_tokens_per_second": engine.pacing.prefill_rate,
            "decode_pass_seconds": engine.pacing.decode_seconds,
        },
        "prefix_cache": {
            "entries": len(prefixes),
            "bytes": prefixes.nbytes,
            **vars(prefixes.counts),
        },
        "memory": service.model.device.memory(),
    }
