"""One line for every request that was served, in pairs of name and value; and its counts."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("ferro.serve.access")


class Logged:
    """Logs method, path, status, time, whose key it was, and what the model did."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            log.info("%s", line(scope, status, time.perf_counter() - started))
            metrics = scope["app"].state.metrics
            if metrics is not None:
                # paths that are none would be endless
                known = "endpoint" in scope and not scope.get("path_params")
                path = scope["path"] if known else "other"
                metrics.served(path, status, scope.get("state", {}).get("running"))


def line(scope: Scope, status: int, seconds: float) -> str:
    """The pairs of one request; nothing of what was said in it."""
    path = scope["path"].encode("unicode_escape").decode()[:200]
    pairs = {"method": scope["method"], "path": path, "status": status, "seconds": f"{seconds:.3f}"}
    state = scope.get("state", {})
    if "key" in state:
        pairs["key"] = repr(state["key"])
    running = state.get("running")
    if running is not None:
        clocks = [job.clock for job in running.jobs]
        pairs["prompt"] = sum(job.task.prompt_tokens for job in running.jobs)
        pairs["cached"] = sum(clock.cached_tokens for clock in clocks)
        pairs["tokens"] = sum(clock.tokens for clock in clocks)
        if clocks and clocks[0].first is not None:
            pairs["first_token"] = f"{clocks[0].first - clocks[0].made:.3f}"
        pairs["given_up"] = any(job.cancelled for job in running.jobs)
    return " ".join(f"{name}={value}" for name, value in pairs.items())
