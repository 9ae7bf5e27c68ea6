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
from ferro.serve.language import ServedLanguage
from ferro.serve.running import Running
from ferro.serve.service import Service
from ferro.serve.totals import Counts, EncoderTotals

LABELS = ["model_name"]
Number = tuple[str, str, float]  # name, what it is, value
TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)


class Metrics:
    """Histograms of requests, and a view of the lanes' own counts. Raises ImportError where
    prometheus-client is not installed."""

    def __init__(self, service: Service) -> None:
        import prometheus_client as prometheus

        self._registry = prometheus.CollectorRegistry()
        self._prometheus = prometheus

        def histograms(name: str, text: str) -> list[Any]:
            return [
                prometheus.Histogram(
                    f"{system}{name}", text, LABELS, registry=self._registry, buckets=TIMES
                )
                for system in ("ferro_", "vllm:")
            ]

        self._first = histograms("time_to_first_token_seconds", "From request to first token.")
        self._whole = histograms("e2e_request_latency_seconds", "From request to last token.")
        self._waited = histograms("request_queue_time_seconds", "From request to a slot.")
        self._ends = prometheus.Counter(
            "vllm:request_success",
            "Requests that were served.",
            [*LABELS, "finished_reason"],
            registry=self._registry,
        )
        self._served = prometheus.Counter(
            "ferro_requests_served", "Requests by status.", ["path", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._registry.register(Counted(service))
        self._names = {each.lane: each.name for each in service.served}

    def served(self, path: str, status: int, running: Running | None) -> None:
        """Count a request."""
        self._served.labels(path, str(status)).inc()
        if running is None:
            return
        name = self._names[running.lane]
        for job in running.jobs:
            clock = job.clock
            if clock.started is not None:
                _observe(self._waited, name, clock.started - clock.made)
            if clock.first is not None:
                _observe(self._first, name, clock.first - clock.made)
            if clock.ended is not None:
                _observe(self._whole, name, clock.ended - clock.made)
            self._ends.labels(name, "abort" if job.cancelled else "stop").inc()

    def text(self) -> bytes:
        found: bytes = self._prometheus.generate_latest(self._registry)
        return found


def _observe(histograms: list[Any], name: str, seconds: float) -> None:
    for histogram in histograms:
        histogram.labels(name).observe(seconds)


class Counted:
    """Reads the lanes' counts when it is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for served in self._service.served:
            language = isinstance(served, ServedLanguage)
            counted = counters(served) if language else encoder_counters(served)
            for name, text, value in counted:
                counter = CounterMetricFamily(name, text, labels=LABELS)
                counter.add_metric([served.name], value)
                yield counter
            measured = gauges(served) if language else encoder_gauges(served)
            for name, text, value in measured:
                gauge = GaugeMetricFamily(name, text, labels=LABELS)
                gauge.add_metric([served.name], value)
                yield gauge
        held = GaugeMetricFamily("ferro_memory_bytes", "Device memory.", labels=["purpose"])
        for purpose, size in self._service.device.memory().items():
            held.add_metric([purpose], size)
        yield held


def requests(totals: Counts, prefix: str) -> Iterator[Number]:
    """What became of requests."""
    yield f"{prefix}requests", "Requests that were taken.", totals.requests
    yield f"{prefix}requests_refused", "Requests that found the queue full.", totals.refused
    yield f"{prefix}requests_cancelled", "Requests whose client left.", totals.cancelled
    yield f"{prefix}requests_failed", "Requests that failed.", totals.failed


def encoder_counters(served: Any) -> Iterator[Number]:
    """Of an encoder's lane, by its kind; names without the ending `_total`."""
    totals: EncoderTotals = served.lane.totals
    prefix = f"ferro_{served.kind}_"
    yield f"{prefix}inputs", "Inputs that were computed.", totals.inputs
    yield f"{prefix}tokens", "Tokens of inputs that were computed.", totals.tokens
    yield f"{prefix}passes", "Passes of the model.", totals.passes
    yield f"{prefix}seconds", "Seconds of passes.", totals.seconds
    yield from requests(totals, prefix)


def encoder_gauges(served: Any) -> Iterator[Number]:
    text = "Requests that are served or wait."
    yield f"ferro_{served.kind}_waiting", text, served.lane.waiting


def counters(served: Any) -> Iterator[Number]:
    """Of a language model's lane; names without the ending `_total`."""
    totals, cache = served.lane.totals, served.lane.prefixes.counts
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
    yield from requests(totals, "ferro_")


def gauges(served: Any) -> Iterator[Number]:
    lane, slots = served.lane, served.model.slots
    for name in ("llamacpp:requests_processing", "vllm:num_requests_running", "ferro_active"):
        yield name, "Slots in use.", lane.active
    for name in ("llamacpp:requests_deferred", "vllm:num_requests_waiting", "ferro_waiting"):
        yield name, "Requests that wait for a slot.", lane.waiting
    yield (
        "llamacpp:prompt_tokens_seconds",
        "Tokens of prompts a second.",
        (lane.pacing.prefill_rate or 0.0),
    )
    seconds = lane.totals.decode_seconds
    rate = lane.totals.decode_rows / seconds if seconds else 0.0
    yield "llamacpp:predicted_tokens_seconds", "Tokens generated a second.", rate
    passes = lane.totals.decode_passes
    busy = lane.totals.decode_rows / passes if passes else 0.0
    yield "llamacpp:n_busy_slots_per_decode", "Streams of a pass that decodes.", busy
    yield "vllm:kv_cache_usage_perc", "Share of the slots in use.", lane.active / slots
    yield "ferro_prefix_cache_bytes", "Memory of snapshots.", lane.prefixes.nbytes
    yield "ferro_prefix_cache_entries", "Snapshots.", len(lane.prefixes)


async def metrics(request: Request) -> Response:
    found: Metrics | None = request.app.state.metrics
    if found is None:
        raise ApiError(
            501, 'this needs prometheus-client: pip install "ferro[serve]"', code="not_supported"
        )
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Response(found.text(), media_type=kind)
