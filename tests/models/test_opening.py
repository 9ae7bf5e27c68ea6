"""``ferro.load``: any file as the model that it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import ferro
from ferro.models.completion import Options
from ferro.models.decision_model import DecisionModel
from ferro.models.embedding_model import EmbeddingModel
from ferro.models.errors import NotGguf
from ferro.models.known import NoSuchModel
from ferro.models.language_model import LanguageModel
from ferro.models.loaded import BadOption
from ferro.runtime import DeviceError, NoSuchDevice, open_device
from tests.models import tiny

KINDS = {
    "llama-tiny": LanguageModel,
    "gemma-embedding-tiny": EmbeddingModel,
    "gemma-embedding2-tiny": EmbeddingModel,
    "lfm2-decision-tiny": DecisionModel,
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_file_is_loaded_as_what_it_is(name: str, kind: type) -> None:
    with open_device("interpreter") as device:
        with ferro.load(tiny.path(name, "q8_0"), device, weights="f32") as model:
            assert type(model) is kind and model.device is device
        assert device.memory()["weights"] == 0
        device.zeros(4, "float32")  # it stays open


def test_a_device_by_name_is_closed_with_the_model() -> None:
    with ferro.load(str(tiny.path("llama-tiny", "q8_0")), "interpreter", context=32) as model:
        device = model.device
        text = "".join(model.generate("The quick", Options(most=2)))
        assert isinstance(text, str)
        messages = [{"role": "user", "content": "hi"}]
        assert len(model.chat(messages, Options(most=0)).completion.prompt) > 2
    with pytest.raises(DeviceError, match="closed"):
        device.zeros(4, "float32")


def test_options_that_a_kind_does_not_have() -> None:
    path = tiny.path("gemma-embedding2-tiny", "q8_0")
    with pytest.raises(
        BadOption, match=r"embedding models have no option `slots` \(known: .*batch"
    ):
        ferro.load(path, "interpreter", slots=2)


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(NoSuchModel, match="no file and no model `nothing`"):
        ferro.load("nothing")
    with pytest.raises(FileNotFoundError):
        ferro.load(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(NotGguf):
        ferro.load(tmp_path / "text.gguf")
    with pytest.raises(NoSuchDevice):
        ferro.load(tiny.path("llama-tiny", "q8_0"), "no such device")
