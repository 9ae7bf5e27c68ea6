"""`ferro serve`: what its options mean, and wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferro.cli import build_parser, main
from ferro.commands import serve


def settings(*words: str) -> Any:
    return serve.settings(build_parser().parse_args(["serve", "model.gguf", *words]))


def test_defaults() -> None:
    found = settings()
    assert (found.slice_seconds, found.decode_share, found.most_waiting) == (0.04, 0.4, 128)
    assert found.prefix_cache_bytes == 128 << 20 and found.request_seconds == 600
    assert found.sampling == {"penalise_prompt": False}


def test_options_are_settings() -> None:
    words = "--prefill-slice-ms 200 --decode-share 50 --request-timeout 0 --temp 0.5 --alias a"
    found = settings(*words.split(), "--no-prefix-tail", "--penalty-scope", "all")
    assert (found.slice_seconds, found.decode_share) == (0.2, 0.5)
    assert found.request_seconds is None and not found.prefix_tails and found.aliases == ("a",)
    assert found.sampling == {"temperature": 0.5, "penalise_prompt": True}


@pytest.mark.parametrize(
    "words",
    ["--lm-slots 0", "--port 70000", "--decode-share 100", "--queue -1", "--temp -1", "--ctx 0"],
)
def test_wrong_options_end_with_2(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.gguf").touch()
    assert main(["serve", "model.gguf", "--port", "0", *words.split()]) == 2
    assert "ferro serve:" in capsys.readouterr().err


def test_a_model_that_is_none_ends_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"no model")
    assert main(["serve", str(file), "--port", "0"]) == 2
    assert "model.gguf" in capsys.readouterr().err
