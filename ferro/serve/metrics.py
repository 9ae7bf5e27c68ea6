"""``GET /metrics``: what the server does, for Prometheus.

Own names begin with ``ferro_``; the same numbers go by the names of llama.cpp's server and of vLLM
too, for dashboards that were made for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ferro.serve.errors import ApiError
from ferro.serve.running import Running
from ferro.serve.service import Service

TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)


class Metrics:
    """Histograms of requests, and a view of the engine's own counts. Raises ImportError where
    prometheus-client is not installed."""

    def __init__(self, service: Service) -> None:
        import prometheus_client as prometheus

        self._registry = prometheus.CollectorRegistry()
        self._prometheus = prometheus
        labels = {"model_name": service.name}

        def histogram(name: str, text: str) -> Any:
            made = prometheus.Histogram(name, text, labels, registry=self._registry, buckets=TIMES)
            return made.labels(**labels)

        self._first = [
            histogram(f"{system}time_to_first_token_seconds", "From request to first token.")
            for system in ("ferro_", "vllm:")
        ]
        self._whole = [
            histogram(f"{system}e2e_request_latency_seconds", "From request to last token.")
            for system in ("ferro_", "vllm:")
        ]
        self._waited = [
            histogram(f"{system}request_queue_time_seconds", "From request to a slot.")
            for system in ("ferro_", "vllm:")
        ]
        self._ends = prometheus.Counter(
            "vllm:request_success",
            "Requests that were served.",
            ["model_name", "finished_reason"],
            registry=self._registry,
        )
        self._served = prometheus.Counter(
            "ferro_requests_served", "Requests by status.", ["path", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._registry.register(Engine(service))
        self._name = service.name

    def served(self, path: str, status: int, running: Running | None) -> None:
        """Count a request."""
        self._served.labels(path, str(status)).inc()
        for job in [] if running is None else running.jobs:
            clock = job.clock
            if clock.started is not None:
                self._observe(self._waited, clock.started - clock.made)
            if clock.first is not None:
                self._observe(self._first, clock.first - clock.made)
            if clock.ended is not None:
                self._observe(self._whole, clock.ended - clock.made)
            reason = "abort" if job.cancelled else "stop"
            self._ends.labels(self._name, reason).inc()

    def text(self) -> bytes:
        found: bytes = self._prometheus.generate_latest(self._registry)
        return found

    @staticmethod
    def _observe(histograms: list[Any], seconds: float) -> None:
        for histogram in histograms:
            histogram.observe(seconds)


class Engine:
    """Reads the engine's counts when it is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels, values = ["model_name"], [self._service.name]
        for name, text, value in counters(self._service):
            family = CounterMetricFamily(name, text, labels=labels)
            family.add_metric(values, value)
            yield family
        for name, text, value in gauges(self._service):
            gauge = GaugeMetricFamily(name, text, labels=labels)
            gauge.add_metric(values, value)
            yield gauge
        held = GaugeMetricFamily("ferro_memory_bytes", "Device memory.", labels=["purpose"])
        for purpose, size in self._service.model.device.memory().items():
            held.add_metric([purpose], size)
        yield held


def counters(service: Service) -> Iterator[tuple[str, str, float]]:
    """Names without the ending `_total`."""
    totals, cache = service.engine.totals, service.engine.prefixes.counts
    for name in ("llamacpp:prompt_tokens", "vllm:prompt_tokens", "ferro_prompt_tokens"):
        yield name, "Tokens of prompts that were computed.", totals.prompt_tokens
    for name in ("llamacpp:tokens_predicted", "vllm:generation_tokens", "ferro_tokens"):
        yield name, "Tokens that were generated.", totals.tokens
    for name in ("llamacpp:prompt_seconds", "ferro_prefill_seconds"):
        yield name, "Seconds of passes over prompts.", totals.prefill_seconds
    for name in ("llamacpp:tokens_predicted_seconds", "ferro_decode_seconds"):
        yield name, "Seconds of passes that decode.", totals.decode_seconds
    for name in ("llamacpp:n_decode", "ferro_passes"):
        yield name, "Passes of the model.", totals.passes
    for name in ("vllm:prefix_cache_queries", "ferro_prefix_cache_queries"):
        yield name, "Prompts that were looked up.", cache.queries
    for name in ("vllm:prefix_cache_hits", "ferro_prefix_cache_hits"):
        yield name, "Prompts whose beginning was found.", cache.hits
    yield "ferro_prefix_cache_evictions", "Snapshots that were pushed out.", cache.evicted
    yield "ferro_cached_tokens", "Tokens of prompts that were not computed.", totals.cached_tokens
    yield "ferro_requests", "Requests that were taken.", totals.requests
    yield "ferro_requests_refused", "Requests that found the queue full.", totals.refused
    yield "ferro_requests_cancelled", "Requests whose client left.", totals.cancelled
    yield "ferro_requests_failed", "Requests that failed.", totals.failed


def gauges(service: Service) -> Iterator[tuple[str, str, float]]:
    engine, slots = service.engine, service.model.slots
    for name in ("llamacpp:requests_processing", "vllm:num_requests_running", "ferro_active"):
        yield name, "Slots in use.", engine.active
    for name in ("llamacpp:requests_deferred", "vllm:num_requests_waiting", "ferro_waiting"):
        yield name, "Requests that wait for a slot.", engine.waiting
    yield (
        "llamacpp:prompt_tokens_seconds",
        "Tokens of prompts a second.",
        (engine.pacing.prefill_rate or 0.0),
    )
    seconds = engine.totals.decode_seconds
    rate = engine.totals.decode_rows / seconds if seconds else 0.0
    yield "llamacpp:predicted_tokens_seconds", "Tokens generated a second.", rate
    passes = engine.totals.decode_passes
    busy = engine.totals.decode_rows / passes if passes else 0.0
    yield "llamacpp:n_busy_slots_per_decode", "Streams of a pass that decodes.", busy
    yield "vllm:kv_cache_usage_perc", "Share of the slots in use.", engine.active / slots
    yield "ferro_prefix_cache_bytes", "Memory of snapshots.", engine.prefixes.nbytes
    yield "ferro_prefix_cache_entries", "Snapshots.", len(engine.prefixes)


async def metrics(request: Request) -> Response:
    found: Metrics | None = request.app.state.metrics
    if found is None:
        raise ApiError(
            501, 'this needs prometheus-client: pip install "ferro[serve]"', code="not_supported"
        )
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Response(found.text(), media_type=kind)
