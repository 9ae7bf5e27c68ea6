"""`ferro decide` and `ferro scores` on a model that is not there."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.cli import main
from tests.models.decisions.fakes import FakeDecisionModel, put_in_place
from tests.models.decisions.test_requests import ERRORS, YES_OR_NO, body, choice

Capture = pytest.CaptureFixture[str]
QUESTIONS = ["--state", "Hi", "--yesno", "Is it?", "--choice", "Which?", "a", "b=B=1"]
LEVELS = ["--score", "How?", "low", "mid", "high"]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDecisionModel:
    monkeypatch.chdir(tmp_path)
    return put_in_place(FakeDecisionModel(), monkeypatch)


def run(*words: str) -> int:
    return main(["decide", "d1.gguf", *words])


@pytest.mark.parametrize("indent", [None, 2])
def test_a_request_gets_the_reply_of_the_endpoint(
    model: FakeDecisionModel, capsys: Capture, indent: int | None
) -> None:
    Path("r.json").write_text(json.dumps(body(), indent=indent))
    assert run("--request", "r.json") == 0
    assert json.loads(capsys.readouterr().out) == model.replies([body()])[0]


def test_an_array_gets_an_array_and_shares_passes(
    model: FakeDecisionModel, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [body(), body(choice(a=1, b=2), state={"x": 1.5})]
    stream = io.TextIOWrapper(io.BytesIO(json.dumps(bodies).encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert run("--request", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(model.asked) == 2
    assert found == [model.replies([each])[0] for each in bodies]


def test_questions_of_the_command_line_are_a_request(
    model: FakeDecisionModel, capsys: Capture
) -> None:
    assert run(*QUESTIONS, *LEVELS, "--json") == 0
    asked: dict[str, Any] = {
        "1": YES_OR_NO,
        "2": choice(a=None, b="B=1"),
        "3": {"type": "score", "instructions": "How?", "criteria": ["low", "mid", "high"]},
    }
    expected = model.replies([{"state": "Hi", "questions": asked}])[0]
    assert json.loads(capsys.readouterr().out) == expected


def test_people_see_a_line_for_each_option(
    model: FakeDecisionModel, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*QUESTIONS, *LEVELS) == 0
    plain = capsys.readouterr().out
    assert "Is it?  " in plain and "\n  2 high " in plain and "█" not in plain
    assert len(plain.splitlines()) == 3 + 3 + 4 + 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(*QUESTIONS, *LEVELS) == 0
    assert "█" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "give --request"),
        (["--state", "x"], "give --request"),
        (["--yesno", "x"], "give --request"),
        (["--request", "r.json", "--state", "x"], "says it all"),
        (["--request", "missing.json"], "missing.json"),
        (["--state", "x", "--choice", "q", "a", "a"], "comes twice"),
        (["--state", "x", "--choice", "q"], "non-empty object"),
        (["--state", "x", "--score", "q", "one"], "2 to 10 levels"),
        (["--state", "\udcff", "--yesno", "q"], "surrogate"),
    ],
)
def test_wrong_use_ends_with_2(
    model: FakeDecisionModel, capsys: Capture, words: list[str], problem: str
) -> None:
    Path("r.json").write_text(json.dumps(body()))
    assert run(*words) == 2
    assert problem in capsys.readouterr().err and not model.asked


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_of_a_request_ends_with_2(
    model: FakeDecisionModel, capsys: Capture, name: str
) -> None:
    given, _ = ERRORS[name]
    Path("r.json").write_text(json.dumps([body(), given]))
    assert run("--request", "r.json") == 2
    assert "ferro decide: request 1: " in capsys.readouterr().err and not model.asked


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "r.json is no JSON"),
        (b"{", "r.json is no JSON"),
        (b"\xff", "r.json is no UTF-8"),
        (b"NaN", "NaN is no JSON number"),
        (b"[" * 100_000, "too deep"),
        (b'{"state":' + b"[" * 90 + b"]" * 90 + b"}", "too deep"),
        (b'{"state":1e999,"questions":{"q":{"type":"noul","instructions":"x"}}}', "no JSON"),
    ],
)
def test_a_file_that_is_no_json_ends_with_2(
    model: FakeDecisionModel, capsys: Capture, data: bytes, problem: str
) -> None:
    Path("r.json").write_bytes(data)
    assert run("--request", "r.json") == 2
    assert problem in capsys.readouterr().err


def test_scores_are_a_numpy_file(model: FakeDecisionModel, capsys: Capture) -> None:
    assert main(["scores", "d1.gguf", "--ids", "5,6,7", "--out", "x.npy"]) == 0
    rows = np.load("x.npy")
    assert rows.dtype == np.float32 and np.array_equal(rows, model.rows([5, 6, 7]))
    assert capsys.readouterr().out == "x.npy: float32 [3, 3]\n"
    assert main(["scores", "d1.gguf", "--text", "Hi<|mask|>", "--out", "x.npy", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ids"] == model.tokenizer.encode("Hi<|mask|>", add_special=False)


@pytest.mark.parametrize(
    "words", [["--ids", "9999", "--out", "x.npy"], ["--ids", "1", "--out", "no/x"]]
)
def test_wrong_use_of_scores_ends_with_2(model: FakeDecisionModel, words: list[str]) -> None:
    assert main(["scores", "d1.gguf", *words]) == 2
