"""What every model is: closed once, used no more behind that, one pass at a time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ferro
from ferro.models.model import Model, ModelClosed
from ferro.runtime import open_device
from tests.models import tiny

QUESTION = {"x": {"type": "noul", "instructions": "Is it?"}}
USES = {
    "gemma-embedding2-tiny": lambda model: model.embed(["a"]),
    "llama-tiny": lambda model: list(model.generate("a")),
    "lfm2-decision-tiny": lambda model: model.decide([1], QUESTION),
}
NAMES = pytest.mark.parametrize("name", USES)


def load(name: str, device: Any = "interpreter") -> Any:
    return ferro.load(tiny.path(name, "q8_0"), device)


@NAMES
def test_a_closed_model_says_so_and_can_be_closed_again(name: str) -> None:
    model = load(name)
    model.close()
    model.close()
    with pytest.raises(ModelClosed, match=rf"{name}-q8_0\.gguf was closed: open it again"):
        USES[name](model)


@NAMES
def test_a_model_of_a_closed_device_can_be_closed(name: str) -> None:
    with open_device("interpreter") as device:
        model = load(name, device)
    model.close()


def test_closing_waits_for_the_pass_under_way() -> None:
    with open_device("interpreter") as device:
        model: Model = load("gemma-embedding2-tiny", device)
        closing = threading.Thread(target=model.close)
        with model._turn():
            closing.start()
            closing.join(0.1)
            assert closing.is_alive() and device.memory()["weights"] > 0
        closing.join(10)
        assert device.memory()["weights"] == 0
