"""Tables, JSON and the progress bar."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ferro.report import Progress, failure, sentence, table, to_json


def test_table_aligns_text_left_and_numbers_right() -> None:
    assert table(["name", "GB/s", "equal"], [["a", 1.25, True], ["longer", 120.4, None]]) == (
        "name    GB/s  equal\na       1.25  yes\nlonger   120  -"
    )


def test_empty_table_is_its_heading() -> None:
    assert table(["name", "value"], []) == "name  value"


def test_rows_must_fit() -> None:
    with pytest.raises(ValueError, match="zip"):
        table(["one"], [["a", "b"]])


def test_json_of_plain_and_of_our_own_things() -> None:
    @dataclass(frozen=True)
    class Point:
        where: Path
        tags: frozenset[str]

    value = {"p": Point(Path("a/b"), frozenset({"y", "x"})), "n": np.float32(0.5)}
    assert json.loads(to_json(value)) == {"p": {"where": "a/b", "tags": ["x", "y"]}, "n": 0.5}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal() -> None:
    stream = Terminal()
    with Progress(4, "tune", stream) as progress:
        progress.step("first")
        progress.step("rest", count=9)
    text = stream.getvalue()
    assert "1/4" in text and "first" in text and "4/4" in text
    assert text.endswith("\r\x1b[K")


def test_progress_holds_back_what_is_quick() -> None:
    stream = Terminal()
    with Progress(2, "load", stream, delay=60.0) as progress:
        progress.step()
    assert stream.getvalue() == ""


def test_progress_is_silent_elsewhere() -> None:
    stream = io.StringIO()
    with Progress(2, "tune", stream) as progress:
        progress.step()
    assert stream.getvalue() == ""
    assert progress.done == 1


def test_errors_of_the_system_name_the_file_first(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "none").read_text()
    assert sentence(caught.value) == f"{tmp_path / 'none'}: No such file or directory"
    assert sentence(ValueError()) == "ValueError"


def test_errors_as_json_have_log_and_diagnostics() -> None:
    class Refused(Exception):
        log = "line 1: no"
        diagnostics = ({"code": "FER001"},)

    assert failure(Refused("refused"), 1) == {
        "kind": "Refused",
        "code": 1,
        "message": "refused",
        "log": "line 1: no",
        "diagnostics": [{"code": "FER001"}],
    }
    assert set(failure(ValueError("bad"), 2)) == {"kind", "code", "message"}
