"""One program cache for all tests of a clone, and hypothesis profiles: `ci` draws the same few
examples on every run, `full` draws many."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=20,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("full", parent=settings.get_profile("ci"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    """Programs and probes are kept beside pytest's own cache, not among the user's."""
    if (cache := getattr(config, "cache", None)) is not None:
        os.environ.setdefault("FERRO_CACHE_DIR", str(cache.mkdir("ferro")))
