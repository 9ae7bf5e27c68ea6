"""`ferro inspect`: what it prints, and the code it ends with."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ferro.cli import main
from tests.models import ggufs
from tests.models.ggufs import key, whole

Capture = pytest.CaptureFixture[str]


def test_a_model_that_runs(tmp_path: Path, capsys: Capture) -> None:
    path = ggufs.model(tmp_path / "model.gguf", "lfm2")
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "lfm2.block_count" in out and "40 texts" in out
    assert "KV cache in int8, 128 tokens" in out and "state of convolutions" in out
    assert out.splitlines()[-1] == "architecture lfm2: supported"
    assert "blk.0.ffn_up.weight" not in out
    assert main(["inspect", str(path), "--tensors"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["blk.0.ffn_up.weight", "Q8_0", "[96,", "64]", "6528"] in rows


def test_json(tmp_path: Path, capsys: Capture) -> None:
    path = ggufs.model(tmp_path / "model.gguf", "llama", "Q4_0")
    assert main(["inspect", str(path), "--json", "--context", "10"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["architecture"], found["supported"], found["problem"]) == ("llama", True, None)
    assert found["bytes"] == path.stat().st_size and found["version"] == 3
    assert found["hyperparameters"]["width"] == ggufs.WIDTH
    assert found["metadata"]["llama.block_count"] == ggufs.LAYERS
    embedding = next(t for t in found["tensors"] if t["name"] == "token_embd.weight")
    shape = [ggufs.TOKENS, ggufs.WIDTH]
    size = ggufs.TOKENS * ggufs.WIDTH // 32 * 18
    assert embedding == {"name": "token_embd.weight", "type": "Q4_0", "shape": shape, "bytes": size}
    assert sum(kind["tensors"] for kind in found["types"].values()) == len(found["tensors"])
    numbers = 2 * 10 * ggufs.LAYERS * ggufs.KV_HEADS * ggufs.HEAD
    assert found["memory"]["kv"]["f16"] == 2 * numbers and found["memory"]["context"] == 10
    assert found["memory"]["weights"]["q8"] < found["memory"]["weights"]["f32"]


def test_a_model_that_does_not_run_is_described(tmp_path: Path, capsys: Capture) -> None:
    path = ggufs.model(tmp_path / "model.gguf", without=["blk.2.ffn_up.weight"])
    assert main(["inspect", str(path), "--json"]) == 2
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["supported"] is False and found["hyperparameters"] is None
    assert found["problem"] == "the tensor `blk.2.ffn_up.weight` is missing"
    assert printed.err == f"ferro inspect: {path}: {found['problem']}\n"
    assert main(["inspect", str(path)]) == 2
    assert "architecture llama: cannot be run" in capsys.readouterr().out


def test_a_broken_file(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(ggufs.model(tmp_path / "model.gguf").read_bytes()[:-100])
    assert main(["inspect", str(path), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "CutShort" and "cut short: tensor `" in error["message"]


@pytest.mark.parametrize(("name", "said"), [("absent", "No such file"), (".", "Is a directory")])
def test_paths_that_are_no_files(tmp_path: Path, capsys: Capture, name: str, said: str) -> None:
    assert main(["inspect", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_odd_values_are_printed_as_text(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "odd.gguf"
    keys = [
        key("real", 6, struct.pack("<f", float("nan"))),
        key("word", 8, ggufs.text(b"\xff\x1b[31m\n")),
        key("list", 9, struct.pack("<IQ2f", 6, 2, float("inf"), 1.5)),
    ]
    path.write_bytes(whole(keys))
    assert main(["inspect", str(path)]) == 2
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[31m\\n" in out and out.encode()
    assert main(["inspect", str(path), "--json"]) == 2
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["metadata"]["real"] == "nan" and found["metadata"]["list"] == ["inf", 1.5]


def test_contexts_are_positive(tmp_path: Path, capsys: Capture) -> None:
    path = ggufs.model(tmp_path / "model.gguf")
    assert main(["inspect", str(path), "--context", "0"]) == 2
    assert "--context takes a number from 1 to 2147483647" in capsys.readouterr().err
