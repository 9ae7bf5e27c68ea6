"""How a server was asked to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REASONING_FORMATS = ("auto", "deepseek", "none")


@dataclass(frozen=True)
class Settings:
    """Limits and defaults. Times are in seconds, sizes in bytes.

    ``sampling`` are fields of ``Sampling`` that count before the model's own recommendations;
    ``reasoning_format`` "none" leaves reasoning in the content; ``thinking_budget`` is how many
    tokens of it there may be (None: as many as the model likes); ``warm``: all shapes of passes are
    run once before the first request.
    """

    slice_seconds: float = 0.04
    decode_share: float = 0.4
    most_waiting: int = 128
    most_bytes: int = 16 << 20
    request_seconds: float | None = 600.0
    ping_seconds: float = 30.0
    shutdown_seconds: float = 10.0
    prefix_cache_bytes: int = 128 << 20
    prefix_tails: bool = True
    sampling: Mapping[str, Any] = field(default_factory=dict)
    reasoning_format: str = "auto"
    thinking_budget: int | None = None
    aliases: tuple[str, ...] = ()
    metrics_open: bool = False
    warm: bool = False
    cors_origins: tuple[str, ...] = ()
