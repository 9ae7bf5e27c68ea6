"""The child process: it answers, dies, hangs, and is replaced."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from autotune.candidates import Candidate
from autotune.child import Child, Lost, answered
from autotune.messages import Checked, Job
from ferro.codegen.program import Config
from tests.unit.autotune.support import SIMD, double


def candidate(block: int) -> Candidate:
    config = Config({"BLOCK": block})
    return Candidate(config, double.specialise(BLOCK=block), str(block))


def child(timeout: float = 20.0) -> Child:
    return Child(Job("fake", 10.0, SIMD, {}, {}), timeout)


def test_checks_and_times(behave: Any) -> None:
    behave({16: 0.5})
    with child() as one:
        assert not one.ready(candidate(16))
        assert one.check(candidate(16)) == Checked({"y": 0})
        assert one.ready(candidate(16))
        assert one.time(candidate(16), 0.1) == [0.505] * 4


@pytest.mark.parametrize("does", ["wrong", "fail"])
def test_what_does_not_work_is_not_ready(behave: Any, does: str) -> None:
    behave({16: does})
    with child() as one:
        found = one.check(candidate(16))
        assert found.failure or found.differing == {"y": 3}
        assert not one.ready(candidate(16))


def test_a_child_that_dies_is_lost_with_its_last_words_and_replaced(behave: Any) -> None:
    behave({16: "die"})
    with child() as one:
        one.check(candidate(64))
        with pytest.raises(Lost, match="status 1: something broke"):
            one.check(candidate(16))
        assert not one.ready(candidate(64))
        assert one.check(candidate(32)) == Checked({"y": 0})


def test_a_child_that_hangs_is_killed(behave: Any) -> None:
    behave({16: "hang"})
    with child(3.0) as one:
        one.check(candidate(64))
        process = one._process
        assert process is not None
        began = time.monotonic()
        with pytest.raises(Lost, match="no answer within 3 s"):
            one.check(candidate(16))
        assert time.monotonic() - began < 60
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        assert one.check(candidate(64)) == Checked({"y": 0})


def test_a_pause_of_both_is_no_hang() -> None:
    class Stopped:
        """A channel whose process was stopped for an hour, as was ours."""

        waits = 0

        def poll(self, timeout: float) -> bool:
            self.waits += 1
            return self.waits == 3

    assert answered(Stopped(), 5.0)  # type: ignore[arg-type]
    assert not answered(Stopped(), 2.0)  # type: ignore[arg-type]


def test_closing_ends_the_process(behave: Any) -> None:
    one = child()
    one.check(candidate(64))
    assert one._process is not None
    pid = one._process.pid
    one.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    one.close()


def test_a_worker_that_cannot_start_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.child.WORKER", "no.such.module")
    with child() as one, pytest.raises(Lost, match="No module named"):
        one.check(candidate(64))
