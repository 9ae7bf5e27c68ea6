"""How much of the processors other programs took."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferro import neighbours
from ferro.neighbours import Watch, quiet

TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of two processors, on which this process may use the first, and does nothing."""
    path = tmp_path / "stat"
    path.write_text("")
    monkeypatch.setattr(neighbours, "PROC", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(os, "times", lambda: os.times_result((1.0, 1.0, 0.0, 0.0, 0.0)))
    return path


def write(path: Path, busy: int, idle: int, other_processor: int = 0) -> None:
    rows = [
        f"cpu  {busy + other_processor} 0 0 {idle} 0 0 0 0 0 0",
        f"cpu0 {busy} 0 0 {idle} 0 0 0 0 0 0",
        f"cpu1 {other_processor} 0 0 0 0 0 0 0 0 0",
    ]
    path.write_text("\n".join([*rows, "intr 1 2 3"]))


def test_busy_time_that_is_not_ours_is_others(stat: Path) -> None:
    write(stat, 100, 100)
    watch = Watch()
    write(stat, 100 + 30, 100 + 70)
    assert watch.others() == pytest.approx(0.3)


def test_our_own_time_is_not_others(stat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(stat, 100, 100)
    watch = Watch()
    write(stat, 150, 150)
    used = 1.0 + 40 / TICK
    monkeypatch.setattr(os, "times", lambda: os.times_result((used, 1.0, 0.0, 0.0, 0.0)))
    assert watch.others() == pytest.approx(0.1)


def test_the_time_of_processes_of_ours_is_not_others(stat: Path) -> None:
    (stat.parent / "77").mkdir()
    process = stat.parent / "77" / "stat"
    process.write_text("77 (a server) (1) S " + " ".join(["0"] * 10) + " 20 10 0 0")
    write(stat, 100, 100)
    watch = Watch([77])
    write(stat, 150, 150)
    process.write_text("77 (a server) (1) S " + " ".join(["0"] * 10) + " 50 15 0 0")
    assert watch.others() == pytest.approx(0.15)


def test_nothing_is_known_beside_a_process_that_is_gone(stat: Path) -> None:
    write(stat, 100, 100)
    assert Watch([77]).others() is None


def test_processors_that_are_not_ours_do_not_count(stat: Path) -> None:
    write(stat, 100, 100)
    watch = Watch()
    write(stat, 100, 200, other_processor=100)
    assert watch.others() == 0.0


def test_one_tick_is_no_sign_of_another_program(stat: Path) -> None:
    write(stat, 100, 100)
    watch = Watch()
    write(stat, 101, 103)
    assert watch.others() == 0.0


def test_without_the_file_nothing_is_known(stat: Path) -> None:
    stat.unlink()
    assert Watch().others() is None


def test_quiet_is_up_to_five_percent_or_unknown() -> None:
    assert [quiet(share) for share in (0.0, 0.05, 0.051, None)] == [True, True, False, True]
