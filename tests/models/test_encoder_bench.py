"""`ferro bench` of an embedding model."""

from __future__ import annotations

import json

import pytest

from ferro.cli import main
from tests.models import tiny


def run(*words: str) -> int:
    path = tiny.path("gemma-embedding2-tiny", "q8_0")
    return main(["bench", str(path), "--device", "interpreter", *words])


def test_sequences_are_measured_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--sequences", "2,3", "-p", "5", "-r", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(m["sequences"], m["tokens"], len(m["samples"])) for m in found["embed"]] == [
        (2, 5, 2),
        (3, 5, 2),
    ]
    assert found["same"] is True


@pytest.mark.parametrize(
    "words",
    [
        ["--profile"],
        ["--sequences", "0"],
        ["-p", "0"],
        ["-p", "1,2"],
        ["-r", "0"],
        ["-p", "99999"],
        ["--sequences", "1,99999999999"],
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert run(*words) == 2
    assert capsys.readouterr().err.startswith("ferro bench: ")
