"""The fake child in place of the real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import child

Behave = Callable[[dict[int, Any]], Path]


@pytest.fixture
def behave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Behave:
    """Says what the fake child does for each BLOCK; gives the log of what it was asked to check."""
    path = tmp_path / "behaviour"
    monkeypatch.setattr(child, "WORKER", "tests.unit.autotune.fake_worker")
    monkeypatch.setenv("FAKE_WORKER", str(path))

    def write(does: dict[int, Any]) -> Path:
        path.write_text(json.dumps(does))
        log = path.with_name("log")
        log.unlink(missing_ok=True)
        log.touch()
        return log

    write({})
    return write
