"""The commands on tiny models: from a file to text, tokens, logits and speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.cli import main
from ferro.models.completion import Options
from ferro.models.generation import Stream
from ferro.models.language_model import LanguageModel
from ferro.models.sampler import Sampling
from ferro.runtime import open_device
from tests.models import tiny

Capture = pytest.CaptureFixture[str]
FLOAT = ("--weights", "f32", "--cache", "f32")


def run(capsys: Capture, command: str, name: str, kind: str, *words: str) -> Any:
    path = str(tiny.path(name, kind))
    assert main([command, path, "--device", "interpreter", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_greedy_text_is_what_the_logits_say(name: str, tmp_path: Path, capsys: Capture) -> None:
    options = ("--raw", "--temp", "0", "--n-predict", "5", "--ignore-eos")
    made = run(capsys, "generate", name, "q8_0", "--prompt", "Once upon a time", *options)
    assert made["stats"]["tokens"] == len(made["ids"]) == 5
    ids = ",".join(map(str, [*made["prompt_ids"], *made["ids"]]))
    out = tmp_path / "x.npy"
    run(capsys, "logits", name, "q8_0", "--ids", ids, "--out", str(out))
    assert np.load(out)[-6:-1].argmax(axis=1).tolist() == made["ids"]


@pytest.mark.parametrize("name", tiny.NAMES)
def test_logits_are_llama_cpp_s(name: str, tmp_path: Path, capsys: Capture) -> None:
    answers = tiny.answers(name, "f32")
    ids = ",".join(map(str, answers["ids_7"]))
    out = tmp_path / "x.npy"
    run(capsys, "logits", name, "f32", "--ids", ids, "--out", str(out), *FLOAT)
    assert np.abs(np.load(out) - answers["logits_7"]).max() < 5e-3


@pytest.mark.parametrize("name", tiny.NAMES)
def test_a_text_that_goes_on_from_the_slot_is_the_same(name: str) -> None:
    options = Options(Sampling(temperature=0), 4, ignore_ends=True)
    with (
        open_device("interpreter") as device,
        LanguageModel.open(tiny.path(name, "q8_0"), device, context=64) as model,
    ):
        used, fresh = Stream(model, size=3), Stream(model)
        first = used.complete([5, 6, 7, 8], options)
        "".join(first)
        longer = [5, 6, 7, 8, *first.completion.ids, 9, 10]
        reused, anew = used.complete(longer, options), fresh.complete(longer, options)
        assert reused.timings.cached_tokens == 7 and anew.timings.cached_tokens == 0
        assert "".join(reused) == "".join(anew)
        assert reused.completion.ids == anew.completion.ids


@pytest.mark.slow
def test_bench_measures_and_checks_the_text(capsys: Capture) -> None:
    made = run(capsys, "bench", "lfm2-tiny", "q8_0", "-p", "9", "-n", "2", "-r", "1")
    assert made["model"]["architecture"] == "lfm2" and made["text"]["same"]
    assert len(made["prefill"]) == 1 and len(made["decode"]) == 1
    assert made["memory"]["device"]["weights"] > 0 and made["device"]["name"]
