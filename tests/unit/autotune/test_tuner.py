"""Tuning with a made-up child: winners, losses, early stops, budgets, and going on later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import tuner
from autotune.problem import Problem
from autotune.tuner import Tuning, relative, spread, tune
from ferro.runtime import configs
from ferro.runtime.trials import Trial, Trials
from tests.unit.autotune.support import device, problem

BLOCKS = [16, 32, 64, 128, 256]  # 64 is the default


@pytest.fixture(autouse=True)
def no_twins_by_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.space.lanes", lambda kernel, target: (None,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials.json"


def run(path: Path, wanted: Problem | None = None, budget: float = 600.0, **rest: Any) -> Tuning:
    """A tuning as a new process would do it, with the trials of the ones before."""
    from ferro.runtime import trials

    known = Trials(path)
    known._keep(trials.read(path))
    return tune(wanted or problem(N=5000), device(), known, budget, **rest)


def outcomes(tuning: Tuning) -> dict[int, str]:
    return {t.config.constants["BLOCK"]: t.outcome for t in tuning.tried}


def by_block(tuning: Tuning) -> dict[int, Trial]:
    return {t.config.constants["BLOCK"]: t for t in tuning.tried}


def asked(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


def test_the_fastest_wins_and_its_gain_is_told(behave: Any, path: Path) -> None:
    log = behave({16: 0.9, 32: 0.5, 64: 1.0, 128: 0.98, 256: 2.0})
    found = run(path)
    assert asked(log) == [64, 16, 32, 128, 256]
    assert outcomes(found) == dict.fromkeys(BLOCKS, "timed")
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 32}
    assert found.winner.relative == pytest.approx(0.5, rel=0.03)
    assert found.winner.seconds == pytest.approx(0.5, rel=0.03)
    assert by_block(found)[64].relative == 1.0 and by_block(found)[64].is_default
    assert found.left == () and found.known == 0 and not found.failures


def test_what_is_three_times_slower_is_timed_once(behave: Any, path: Path) -> None:
    behave({16: 3.2, 32: 1.6, 64: 1.0, 128: 1.2, 256: 1.02})
    found = {block: trial.launches // 4 for block, trial in by_block(run(path)).items()}
    assert found == {16: 1, 32: 4, 128: 8, 64: tuner.ROUNDS, 256: tuner.ROUNDS}


def test_the_default_is_timed_to_the_end_however_slow(behave: Any, path: Path) -> None:
    behave({16: 1.0, 32: 1.01, 64: 9.0})
    found = by_block(run(path))
    assert found[64].launches == found[16].launches
    assert found[16].relative == pytest.approx(1 / 9, rel=0.03)


def test_bad_configs_are_recorded_and_the_others_tuned(behave: Any, path: Path) -> None:
    behave({16: "die", 32: "wrong", 128: "fail", 256: 0.5, 64: 1.0})
    found = run(path)
    assert outcomes(found) == {
        16: "lost", 32: "wrong", 64: "timed", 128: "failed", 256: "timed"
    }  # fmt: skip
    assert by_block(found)[32].reason == "3 elements of y differ from the interpreter's"
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 256}


def test_a_hang_is_a_loss(behave: Any, path: Path) -> None:
    behave({16: "hang"})
    found = run(path, timeout=1.5)
    assert outcomes(found)[16] == "lost"
    assert "no answer" in by_block(found)[16].reason
    assert outcomes(found)[256] == "timed"


def test_a_death_while_timing_is_a_loss(behave: Any, path: Path) -> None:
    behave({16: "die late", 64: 1.0, 32: 0.5})
    found = run(path)
    assert outcomes(found) == {16: "lost", 32: "timed", 64: "timed", 128: "timed", 256: "timed"}
    assert by_block(found)[64].relative == 1.0


def test_a_lost_default_leaves_the_others(behave: Any, path: Path) -> None:
    behave({64: "die", 16: 1.0, 32: 0.99, 128: 2.0, 256: 2.0})
    found = run(path)
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 32}


def test_where_nothing_works_every_reason_is_told_in_groups(behave: Any, path: Path) -> None:
    behave({16: "die", 32: "wrong", 64: "fail", 128: "fail", 256: "fail"})
    found = run(path)
    assert found.winner is None
    grouped = {
        reason: [t.config.constants["BLOCK"] for t in trials]
        for reason, trials in found.failures.items()
    }
    assert grouped == {
        "failed: BuildError: it was refused": [64, 128, 256],
        "lost: the process ended with status 1: something broke": [16],
        "wrong: 3 elements of y differ from the interpreter's": [32],
    }


# --- budgets and later runs ---------------------------------------------------------------------


def test_without_time_the_default_alone_is_timed(behave: Any, path: Path) -> None:
    behave({})
    found = run(path, budget=0.0)
    assert outcomes(found) == {64: "timed"}
    assert by_block(found)[64].launches == 4 * tuner.LEAST_ROUNDS
    assert [config.constants["BLOCK"] for config in found.left] == [16, 32, 128, 256]


def test_a_shipped_winner_is_tried_however_short_the_time(
    behave: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave({128: 0.5})
    wanted = problem(N=5000)
    entry = {"kernel": wanted.place.kernel, "sizes": {}, "config": {"constants": {"BLOCK": 128}}}
    table = {"devices": ["fake"], "targets": ["simd"], "winners": [entry]}
    monkeypatch.setattr("autotune.candidates.shipped", lambda: tuple(configs.read_table(table)))
    found = run(path, wanted, budget=0.0)
    assert outcomes(found) == {64: "timed", 128: "timed"}
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 128}


def test_another_run_tries_the_rest_and_times_the_best_again(behave: Any, path: Path) -> None:
    log = behave({32: 0.5, 16: 0.7, 64: 1.0, 128: 0.25})
    run(path, budget=0.0)
    assert outcomes(run(path)) == dict.fromkeys(BLOCKS, "timed")
    assert sorted(asked(log)) == [16, 32, 64, 64, 128, 256]


def test_a_run_with_nothing_left_tries_nothing(behave: Any, path: Path) -> None:
    behave({32: 0.5})
    first = run(path)
    log = behave({32: 0.5})
    again = run(path)
    assert asked(log) == [] and again.tried == () and again.known == 5
    assert again.winner == first.winner


def test_lost_and_wrong_are_not_tried_again_failed_are(behave: Any, path: Path) -> None:
    behave({16: "die", 32: "wrong", 128: "fail"})
    run(path)
    log = behave({})
    found = run(path)
    assert {16, 32}.isdisjoint(asked(log))
    assert outcomes(found)[128] == "timed"


def test_a_program_that_changed_is_tried_again(
    behave: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave({16: "die"})
    run(path)
    log = behave({16: 0.1})
    monkeypatch.setattr("autotune.candidates.fingerprint", lambda program: f"new {program.config}")
    found = run(path)
    assert sorted(asked(log)) == BLOCKS
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 16}


def test_a_loss_is_on_disk_before_the_run_ends(behave: Any, path: Path) -> None:
    behave({16: "die"})

    def stop(text: str) -> None:
        if text.startswith("BLOCK=128"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(path, report=stop)
    from ferro.runtime import trials

    (found,) = trials.read(path)
    assert found.outcome == "lost" and found.config.constants == {"BLOCK": 16}


def test_an_interrupted_run_keeps_its_times(behave: Any, path: Path) -> None:
    behave({32: 0.5, 64: 1.0})

    def stop(text: str) -> None:
        if "round 5" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(path, report=stop)
    log = behave({})
    found = run(path)
    assert asked(log) == []
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 32}


def test_what_an_interrupted_run_timed_too_little_is_tried_again(behave: Any, path: Path) -> None:
    behave({32: 0.5, 64: 1.0, 16: 9.0})

    def stop(text: str) -> None:
        if text.startswith("BLOCK=128") and "round 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(path, report=stop)
    log = behave({32: 0.5})
    found = run(path)
    assert sorted(asked(log)) == BLOCKS
    assert all(t.launches >= 4 * tuner.LEAST_ROUNDS for t in found.tried if t.relative < 3)


def test_one_more_choice_costs_one_timing(behave: Any, path: Path) -> None:
    from ferro.dsl.kernel import KernelDefinition
    from tests.unit.autotune.support import double

    def named(text: str) -> Problem:
        definition = KernelDefinition.from_source(text, "k.py", double.names)
        return Problem(replace(problem(N=5000).request, definition=definition), problem().target)

    fewer = double.source.replace(", 256]", "]")
    behave({})
    first = run(path, named(fewer))
    # a stranger's kernel is filed under its text: pretend that it is a shipped one
    known = Trials(path)
    for trial in first.tried:
        known.add(replace(trial, kernel=named(double.source).place.kernel))
    known.save()
    log = behave({256: 0.1})
    found = run(path, named(double.source))
    assert asked(log) == [64, 256]
    assert found.winner is not None and found.winner.config.constants == {"BLOCK": 256}


def test_sizes_without_a_launch_are_refused(behave: Any, path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to run"):
        run(path, problem(N=0))


# --- numbers ------------------------------------------------------------------------------------


def test_ratios_are_taken_round_by_round() -> None:
    busy = [[2.0, 2.0], [20.0, 22.0], [2.0, 2.2]]
    base = [[1.0, 1.0], [10.0, 11.0], [1.0, 1.1]]
    assert relative(busy, base) == pytest.approx(2.0)
    assert relative(busy[:1], base) == pytest.approx(2.0)


def test_spread_is_the_middle_half() -> None:
    assert spread([1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
