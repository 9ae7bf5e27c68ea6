"""The short form of the soak: mixed traffic for some seconds, on a model without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import soak
from benchmarks.served import Served
from tests.serve.test_process import serving

STILL = {"rss": 1000, "threads": 9, "files": 10}
QUIET: dict[str, Any] = {
    "start": STILL, "middle": STILL, "end": STILL, "same answer": True,
    "outcomes": {"streamed: 200": 5, "same: same": 1}, "slots": {"active": 0}, "waiting": 0,
}  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_mixed_traffic_loses_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SAMPLE_SECONDS", 1.0)
    with serving(0.0005) as served:
        host, port = served.url.removeprefix("http://").split(":")
        found = soak.soaked(Served(served.process, host, int(port)), 0.08, seed=1)
    assert sum(found["outcomes"].values()) > 10
    # memory of the first seconds says nothing
    assert [said for said in soak.problems(found) if said != "the memory grows"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"slots": {"active": 1}}, "a slot was lost"),
        ({"outcomes": {"same: CHANGED": 1}}, "an answer changed"),
        ({"end": {**STILL, "rss": 1200}}, "the memory grows"),
        ({"end": {**STILL, "threads": 12}}, "threads are left"),
        ({"end": {**STILL, "files": 30}}, "files are left open"),
        ({"outcomes": {"whole: 500": 1}}, "whole: 500"),
    ],
)
def test_what_must_not_be_is_said(change: dict[str, Any], said: str) -> None:
    assert soak.problems(QUIET) == [] and said in soak.problems({**QUIET, **change})
