"""Trials: buckets, the file that holds them, and which of them wins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ferro.codegen.program import Config
from ferro.runtime.trials import Place, Trial, Trials, bucket, winner

SIZES = {"M": 192, "K": 1000}


def trial(name: int, relative: float = 1.0, **changes: object) -> Trial:
    made = Trial(
        kernel="norms.rmsnorm",
        target="simd-16-emulated",
        sizes=SIZES,
        config=Config({"BLOCK": name}, lanes=8, lane_axis=("m", "k"), split=2, dot="avx2"),
        program="p",
        outcome="timed",
        seconds=relative / 1000,
        relative=relative,
        is_default=name == 256,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_gain_that_is_less_than_the_spread_is_uncertain() -> None:
    assert trial(64, 0.9, spread=0.2).uncertain
    assert not trial(64, 0.9, spread=0.05).uncertain
    assert not trial(256, spread=0.5).uncertain
    assert not trial(64, 0.0, outcome="wrong").uncertain


@pytest.mark.parametrize(
    ("size", "rounded"), [(0, 0), (1, 1), (2, 2), (3, 4), (192, 256), (256, 256), (257, 512)]
)
def test_sizes_round_up_to_powers_of_two(size: int, rounded: int) -> None:
    assert bucket({"M": size}) == {"M": rounded}


def test_place_does_not_depend_on_the_order_of_sizes() -> None:
    place = Place.of("k", "t", {"M": 192, "K": 1000})
    assert place == Place.of("k", "t", {"K": 600, "M": 129})
    assert str(place) == "K<=1024 M<=256"


def stored(path: Path, *trials: Trial) -> Trials:
    found = Trials(path)
    for one in trials:
        found.add(one)
    found.save()
    return found


def loaded(path: Path) -> Trials:
    found = Trials(path)
    found._keep(json_trials(path))
    return found


def json_trials(path: Path) -> list[Trial]:
    from ferro.runtime import trials

    return trials.read(path)


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    one, two = trial(64, 0.5, spread=0.1, launches=7), trial(256)
    stored(tmp_path / "d" / "t.json", one, two)
    found = loaded(tmp_path / "d" / "t.json").at(one.place)
    assert found == {one.name: one, two.name: two}


def test_a_later_trial_of_a_config_replaces_the_earlier_one(tmp_path: Path) -> None:
    stored(tmp_path / "t.json", trial(64, 0.5))
    stored(tmp_path / "t.json", trial(64, 2.0))
    (found,) = loaded(tmp_path / "t.json").at(trial(64).place).values()
    assert found.relative == 2.0


def test_saving_keeps_what_another_process_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    first, second = Trials(path), Trials(path)
    first.add(trial(64))
    second.add(trial(1024))
    first.save()
    second.save()
    assert {t.config.constants["BLOCK"] for t in json_trials(path)} == {64, 1024}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"relative": 0.5', '"relative": 0.1'),
        lambda text: text.replace('"format": 1', '"format": 0'),
        lambda text: "[]",
        lambda text: "{}",
        lambda text: "null",
        lambda text: "",
    ],
)
def test_a_damaged_file_is_started_afresh_with_a_message(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.json"
    stored(path, trial(64, 0.5))
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    assert json_trials(path) == []
    assert "starts afresh" in caplog.text
    stored(path, trial(1024))
    assert [t.config.constants["BLOCK"] for t in json_trials(path)] == [1024]


def test_an_unknown_outcome_is_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.json"
    stored(path, trial(64, outcome="splendid"))
    assert json_trials(path) == []
    assert "splendid" in caplog.text


def test_a_folder_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    stored(tmp_path / "file" / "t.json", trial(64))
    assert "trials are not kept" in caplog.text


def test_the_file_names_the_device(tmp_path: Path) -> None:
    found = Trials(tmp_path / "t.json", "a device, driver 1")
    found.add(trial(64))
    found.save()
    assert json.loads(found.path.read_text())["device"] == "a device, driver 1"


@pytest.mark.parametrize(
    ("relative", "wins"), [(0.5, 64), (0.96, 64), (0.975, 256), (1.0, 256), (1.5, 256)]
)
def test_the_default_is_replaced_for_more_than_three_per_cent(relative: float, wins: int) -> None:
    best = winner([trial(256), trial(64, relative), trial(1024, 3.0)])
    assert best is not None and best.config.constants["BLOCK"] == wins


def test_what_did_not_work_never_wins() -> None:
    bad = [trial(64, 0.0, outcome=outcome) for outcome in ("wrong", "failed", "lost")]
    assert winner(bad) is None
    assert winner([]) is None
    best = winner([*bad, trial(1024, 4.0)])
    assert best is not None and best.config.constants["BLOCK"] == 1024


def test_without_a_default_the_fastest_wins_by_any_margin() -> None:
    best = winner([trial(1024, 1.0), trial(64, 0.99), trial(256, 0.0, outcome="failed")])
    assert best is not None and best.config.constants["BLOCK"] == 64
