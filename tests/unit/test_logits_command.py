"""`ferro logits` on a model that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ferro.cli import main
from ferro.models import generation
from tests.models.fakes import FakeModel, put_in_place

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeModel:
    monkeypatch.chdir(tmp_path)
    return put_in_place(FakeModel(context=600), monkeypatch)


def run(*words: str) -> int:
    return main(["logits", "model.gguf", *words])


def test_rows_after_every_token(model: FakeModel, capsys: Capture) -> None:
    assert run("--ids", "5,6,7", "--out", "x.npy") == 0
    rows = np.load("x.npy")
    assert rows.dtype == np.float32 and rows.shape == (3, 512)
    assert np.array_equal(rows[1], model._logits([5, 6]))
    assert capsys.readouterr().out == "x.npy: float32 [3, 512]\n"


def test_long_inputs_go_in_slices(model: FakeModel) -> None:
    ids = [i % 500 for i in range(generation.SLICE + 20)]
    assert run("--ids", ",".join(map(str, ids)), "--out", "x.npy") == 0
    assert [len(piece.tokens) for piece in model.passes] == [generation.SLICE, 20]
    assert np.array_equal(np.load("x.npy")[-1], model._logits(ids))


def test_a_text_is_read_with_special_tokens(model: FakeModel, capsys: Capture) -> None:
    assert run("--text", "Hi<|im_end|>", "--out", "x.npy", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ids"] == model.tokenizer.encode("Hi<|im_end|>")
    assert printed["shape"] == [len(printed["ids"]), 512] and printed["out"] == "x.npy"


def test_a_failure_leaves_the_old_file(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("x.npy").write_text("old")
    monkeypatch.setattr(model, "forward", lambda pieces: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        from ferro.commands.logits import write

        write(model, [1], Path("x.npy"))
    assert Path("x.npy").read_text() == "old"
    assert sorted(path.name for path in Path().iterdir()) == ["model.gguf", "x.npy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ids", "1,x"], "'x' is no token id"),
        (["--ids", "512"], "'512' is no token id (there are 512 tokens)"),
        (["--ids", "-1"], "'-1' is no token id"),
        (["--ids", ","], "no tokens"),
        (["--ids", "1," * 601], "has 601 tokens, the context holds 600"),
        (["--ids", "1", "--out", "none/x.npy"], "the folder is missing"),
        (["--ids", "1", "--out", "."], "the folder is missing, or this is one"),
        (["--ids", "1", "--out", ""], "--out needs the name of a file"),
    ],
)
def test_bad_input_ends_with_2(
    words: list[str], message: str, model: FakeModel, capsys: Capture
) -> None:
    assert run("--out", "x.npy", *words) == 2
    assert message in capsys.readouterr().err
    assert not Path("x.npy").exists()
