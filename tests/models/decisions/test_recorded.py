"""Prompts are those that llama.cpp's tokenizer makes of the protocol's pieces."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from ferro.models.decisions import requests
from ferro.models.decisions.prompts import Prompts
from ferro.models.gguf import GgufFile
from ferro.models.tokenizer import Tokenizer
from tests.models import tiny
from tests.models.decisions.record_prompts import DATA, MOST, grown

CASES = json.loads(DATA.read_text())


@cache
def prompts() -> Prompts:
    file = GgufFile(tiny.path("lfm2-decision-tiny", "q8_0"))
    return Prompts(Tokenizer(file.metadata), MOST)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_prompt_has_the_recorded_ids(case: dict[str, Any]) -> None:
    (made,) = prompts().inputs(requests.read(grown(case["request"])))
    ids, wanted = list(made.tokens), case["ids"]
    assert len(ids) == case["count"]
    if isinstance(wanted, dict):
        assert (ids[:8], ids[-400:]) == (wanted["first"], wanted["last"])
    else:
        assert ids == wanted


def test_some_recorded_prompts_are_cut() -> None:
    assert sum(case["count"] == MOST for case in CASES) == 3
