"""What is recommended for a model."""

from __future__ import annotations

from typing import Any

import pytest

from ferro.models.errors import WrongValue
from ferro.models.gguf_metadata import Metadata
from ferro.models.recommended import FAMILIES, recommended
from ferro.models.sampler import Sampling


def found(**keys: Any) -> dict[str, Any]:
    return recommended(Metadata("x.gguf", {f"general.{k}": v for k, v in keys.items()}))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_s_makers_say(family: str) -> None:
    assert found(architecture=family) == FAMILIES[family]
    Sampling(**FAMILIES[family])


def test_nothing_is_known_of_others() -> None:
    assert found(architecture="llama") == found() == {}


def test_what_the_file_says_counts() -> None:
    keys = {"sampling.temp": 0.3, "sampling.top_k": 7, "sampling.penalty_repeat": 1.1}
    made = found(architecture="lfm2", **keys)
    assert (made["temperature"], made["top_k"], made["repeat_penalty"]) == (0.3, 7, 1.1)
    assert made["top_p"] == FAMILIES["lfm2"]["top_p"]


def test_values_that_cannot_be_are_told() -> None:
    with pytest.raises(WrongValue, match=r"general.sampling.temp"):
        found(**{"sampling.temp": "hot"})
    with pytest.raises(WrongValue, match=r"^x.gguf: the keys `general.sampling.\*`: temperature"):
        found(**{"sampling.temp": -1.0})
