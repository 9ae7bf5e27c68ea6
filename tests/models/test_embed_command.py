"""`ferro embed` on a tiny model."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.cli import main
from ferro.commands import embed, text_files, vector_files
from ferro.models.embedding_model import EmbeddingModel
from tests.models import tiny

MODEL = "gemma-embedding2-tiny"


def run(*words: str) -> int:
    return main(["embed", str(tiny.path(MODEL, "q8_0")), *words, "--device", "interpreter"])


def test_a_text_and_its_ids_have_one_vector(capsys: pytest.CaptureFixture[str]) -> None:
    answers = tiny.answers(MODEL, "q8_0")
    assert run("--text", str(answers["text"]), "--dimensions", "64") == 0
    by_text = json.loads(capsys.readouterr().out)
    ids = ",".join(map(str, answers["text_ids"]))
    assert run("--ids", ids, "--dimensions", "64") == 0
    by_ids = json.loads(capsys.readouterr().out)
    assert by_text["data"] == by_ids["data"] and len(by_ids["data"][0]["embedding"]) == 64
    assert np.linalg.norm(by_ids["data"][0]["embedding"]) == pytest.approx(1, abs=1e-6)


def test_bad_records_are_counted_and_have_no_vector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "a.txt", tmp_path / "a.npy"
    source.write_bytes(b"one\n\xff\n" + b"word " * 3000 + b"\nlast\n")
    assert run("--in", str(source), "--out", str(out), "--stats") == 0
    vectors = np.load(out)
    assert np.isnan(vectors).all(axis=1).tolist() == [False, True, True, False]
    said = capsys.readouterr().err
    assert "record 2: no UTF-8" in said and "record 3: too long" in said and "2 bad" in said


def test_a_vector_without_numbers_is_a_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a model whose numbers are too large for some texts: told by the record's number."""
    pooled = EmbeddingModel.embed_ids

    def broken(self: EmbeddingModel, ids: Any) -> Any:
        found = pooled(self, ids)
        found[[len(each) > 4 for each in ids], -1] = np.inf
        return found

    monkeypatch.setattr(EmbeddingModel, "embed_ids", broken)
    monkeypatch.setattr(embed, "AT_ONCE", 2)
    source, out = tmp_path / "a.txt", tmp_path / "a.jsonl"
    source.write_text("a\nb\nc\nmany words are here\n")
    assert run("--in", str(source), "--out", str(out)) == 0
    rows = [json.loads(line)["embedding"] for line in out.read_text().splitlines()]
    assert [row is None for row in rows] == [False, False, False, True]
    said = capsys.readouterr()
    assert "record 4: the model gave what is no number" in said.err and "1 bad" in said.out
    assert run("--ids", "1,2,3,4,5", "--no-normalise") == 2
    assert json.loads(capsys.readouterr().out)["data"][0]["embedding"] is None


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".json", ".parquet"])
def test_a_run_that_was_cut_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    source, whole, cut = tmp_path / "a.txt", tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    source.write_text("a\nb\nc\nd\ne\n")
    assert run("--in", str(source), "--out", str(whole)) == 0
    monkeypatch.setattr(embed, "AT_ONCE", 2)
    vectors, calls = embed.Work.vectors, []

    def failing(self: embed.Work, ids: Any) -> Any:
        calls.append(len(ids))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return vectors(self, ids)

    monkeypatch.setattr(embed.Work, "vectors", failing)
    run("--in", str(source), "--out", str(cut))
    assert not cut.exists()
    part = tmp_path / f"{cut.name}.part"
    with part.open("ab") as file:
        file.write(b"half a row")
    assert run("--in", str(source), "--out", str(cut)) == 0
    assert calls == [2, 2, 2, 1]
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", cut.name, whole.name]


def test_what_a_cut_off_run_has_done_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "a.txt", tmp_path / "a.npy"
    source.write_bytes(b"good\n\xff\n\xff\n")
    monkeypatch.setattr(embed, "AT_ONCE", 2)
    told = embed.tell_bad

    def failing(stats: embed.Stats, number: int, wrong: str) -> None:
        if number == 2:
            raise KeyboardInterrupt
        told(stats, number, wrong)

    with monkeypatch.context() as patched:
        patched.setattr(embed, "tell_bad", failing)
        run("--in", str(source), "--out", str(out))
    assert run("--in", str(source), "--out", str(out)) == 0
    assert "3 vectors of 192 (2 bad records have none)" in capsys.readouterr().out


def test_two_runs_do_not_share_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.npy"
    row = np.ones((1, 192), np.float32)
    with vector_files.Partial(out, 192, {"begun": 1}) as first:
        first.add([0], row)
        assert run("--text", "b", "--out", str(out)) == 2
        assert "another run is writing" in capsys.readouterr().err
        first.finish(192)
    assert np.load(out).tolist() == row.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_a_disk_that_is_full_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.npy"

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with (
        pytest.raises(OSError, match="No space left") as caught,
        vector_files.Partial(out, 2, {}) as kept,
    ):
        kept._file.close()
        kept._file = Full()
        kept.add([0], np.ones((1, 2), np.float32))
    assert caught.value.filename == f"{out}.part"


def test_texts_are_not_kept_until_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, read, seen = tmp_path / "a.txt", [], []
    source.write_text("a\nb\nc\n")
    lines, ids = text_files.lines, embed.Work.ids

    def counted(*given: Any) -> Any:
        for record in lines(*given):
            read.append(record)
            yield record

    def noted(self: embed.Work, *given: Any) -> Any:
        seen.append(len(read))
        return ids(self, *given)

    monkeypatch.setitem(text_files.FORMATS, "lines", counted)
    monkeypatch.setattr(embed.Work, "ids", noted)
    assert run("--in", str(source), "--out", str(tmp_path / "a.npy")) == 0
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of"),
        (["--text", "a", "--ids", "1"], "give one of"),
        (["--text", "a", "--task", "nonsense"], "no task"),
        (["--text", "a", "--title", "t"], "no title"),
        (["--text", "a", "--dimensions", "999"], "--dimensions"),
        (["--text", "a", "--batch", "99999999999999"], "--batch"),
        (["--text", "a", "--out", "a.bin"], "must end with"),
        (["--text", "a", "--column", "x"], "go with --in"),
        (["--ids", "99999"], "99999"),
        (["--in", "missing.txt"], "missing.txt"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(*words) == 2
    assert said in capsys.readouterr().err


def test_a_language_model_embeds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["embed", str(tiny.path("llama-tiny", "q8_0")), "--text", "a"]
    assert main([*words, "--device", "interpreter"]) == 2
    assert "no embedding model" in capsys.readouterr().err
