"""`ferro bench` on a model that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferro import __version__
from ferro.cli import main
from tests.models.fakes import FakeModel, put_in_place

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeModel:
    monkeypatch.chdir(tmp_path)
    return put_in_place(FakeModel(context=100), monkeypatch)


def run(*words: str) -> int:
    return main(["bench", "model.gguf", *words])


@pytest.mark.usefixtures("model")
def test_json_has_all_samples_and_what_they_were_taken_of(capsys: Capture) -> None:
    assert run("-p", "20", "-n", "4", "-d", "0,30", "-r", "2", "--cache", "f32", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["version"] == __version__
    assert printed["config"]["cache"] == "f32" and printed["config"]["context"] == 100
    assert printed["device"] == {"name": "a fake", "target": "none"}
    (prefill,) = printed["prefill"]
    assert prefill["tokens"] == 20 and len(prefill["samples"]) == 2
    assert [decode["depth"] for decode in printed["decode"]] == [0, 30]
    sample = prefill["samples"][0]
    assert sample["rate"] == 20 / sample["seconds"] and "others" in sample
    assert printed["text"]["same"] and len(printed["text"]["ids"]) == 16
    assert printed["memory"]["resident_peak"] > 10**7


@pytest.mark.usefixtures("model")
def test_a_table_for_people(capsys: Capture) -> None:
    assert run("-p", "20", "-n", "4", "-r", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model.gguf on a fake, weights q4, cache f16, context 100"
    assert lines[1].split() == ["tokens", "after", "tok/s", "spread", "others", "samples"]
    assert lines[2].split()[:3] == ["prefill", "20", "0"]
    assert lines[3].split()[:3] == ["decode", "4", "0"]
    assert lines[4].startswith("'The capital of France is' goes on ")


def test_a_text_that_differs_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    put_in_place(FakeModel(script=range(500)), monkeypatch)
    assert run("-p", "20", "-n", "0", "-r", "1") == 1
    assert "THE TEXT DIFFERED" in capsys.readouterr().err


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "0", "-n", "0"], "nothing is left to measure"),
        (["-p", "x"], "-p takes numbers of at least 0, got `x`"),
        (["-p=-4"], "-p takes numbers of at least 0"),
        (["-n", "1,,2"], "-n takes numbers"),
        (["-d", "1.5"], "-d takes numbers"),
        (["-r", "0"], "-r takes a number above 0"),
        (["-p", "101"], "101 tokens are asked for, the context holds 100"),
        (["-p", "8", "-n", "4", "-d", "97"], "101 tokens are asked for"),
    ],
)
def test_bad_input_ends_with_2(words: list[str], message: str, capsys: Capture) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err
