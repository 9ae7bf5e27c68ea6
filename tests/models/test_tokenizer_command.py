"""`ferro tokenize`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import gguf
import pytest

from ferro.cli import main
from tests.models.vocabularies import cases, metadata

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GGUF file with the small lfm2 vocabulary and no tensors."""
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    writer = gguf.GGUFWriter(path, "lfm2")
    for key, value in metadata("lfm2").items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return str(path)


def test_ids_as_json(model: str, capsys: Capture) -> None:
    for text, plain, special in cases("lfm2")[10:50]:
        assert main(["tokenize", model, f"--text={text}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["ids"] == special
        assert main(["tokenize", model, f"--text={text}", "--json", "--no-special"]) == 0
        assert json.loads(capsys.readouterr().out)["ids"] == plain


def test_a_table_of_pieces(model: str, capsys: Capture) -> None:
    assert main(["tokenize", model, "--text", "Hi<|im_end|>é"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    pieces = ["'<|startoftext|>'", "'H'", "'i'", "'<|im_end|>'", "b'\\xc3'", "b'\\xa9'"]
    assert lines[0] == ["id", "piece"] and lines[-1] == ["6", "tokens"]
    assert [line[1] for line in lines[1:-1]] == pieces


def test_standard_input(model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n"))
    assert main(["tokenize", model, "--json", "--no-special"]) == 0
    assert json.loads(capsys.readouterr().out)["pieces"] == ["H", "i", "\n"]


def test_ids_to_text(model: str, capsys: Capture) -> None:
    assert main(["tokenize", model, "--text", "Hi 🙂", "--json"]) == 0
    ids = ",".join(map(str, json.loads(capsys.readouterr().out)["ids"]))
    assert main(["tokenize", model, "--ids", ids, "--no-special"]) == 0
    assert capsys.readouterr().out == "Hi 🙂\n"


@pytest.mark.parametrize("ids", ["1,x", "512", "-1", "1;2", "1,²"])
def test_what_is_no_id(model: str, ids: str, capsys: Capture) -> None:
    assert main(["tokenize", model, f"--ids={ids}"]) == 2
    assert "is no token id (there are 512 tokens)" in capsys.readouterr().err


def test_an_unknown_pre_tokeniser_is_refused(model: str, capsys: Capture) -> None:
    assert main(["tokenize", model, "--text", "x", "--pre", "lfm9"]) == 2
    error = capsys.readouterr().err
    assert model in error and "`lfm9` is not known" in error and "llama-bpe" in error
    assert main(["tokenize", model, "--text", "x", "--pre", "qwen2"]) == 0


def test_a_file_that_is_not_there(capsys: Capture, tmp_path: Path) -> None:
    assert main(["tokenize", str(tmp_path / "none.gguf"), "--text", "x"]) == 2
    assert "none.gguf" in capsys.readouterr().err
