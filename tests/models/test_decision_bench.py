"""`ferro bench --request` of a decision model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferro.cli import main
from tests.models import tiny
from tests.models.decisions.test_requests import YES_OR_NO, body, choice


def run(name: str, *words: str) -> int:
    return main(["bench", str(tiny.path(name, "q8_0")), "--device", "interpreter", *words])


def test_requests_are_measured_together_and_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps([body(choice(a=1, b=2)), body()]))
    assert run("lfm2-decision-tiny", "--request", str(file), "-r", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is True and found["requests"] == 2
    assert [(m["kind"], m["questions"], len(m["samples"])) for m in found["decide"]] == [
        ("together", 2, 1),
        ("alone", 2, 1),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("lfm2-decision-tiny", None, "--request FILE"),
        ("lfm2-decision-tiny", "[]", "no request"),
        ("lfm2-decision-tiny", "{", "no JSON"),
        ("lfm2-decision-tiny", json.dumps([{"state": 1}]), "request 0: "),
        ("lfm2-tiny", json.dumps({"state": 1, "questions": {"q": YES_OR_NO}}), "decision models"),
    ],
)
def test_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, words: str
) -> None:
    file = tmp_path / "r.json"
    if text is not None:
        file.write_text(text)
    assert run(name, *(["--request", str(file)] if text is not None else [])) == 2
    assert words in capsys.readouterr().err
