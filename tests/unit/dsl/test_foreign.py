"""Hints for names of other languages."""

from __future__ import annotations

import re

import pytest

from ferro.dsl import language
from ferro.dsl.foreign import HINTS
from ferro.dsl.kernel import KernelDefinition


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_names_what_there_is(name: str) -> None:
    for word in re.findall(r"\btl\.(\w+)", HINTS[name]):
        assert hasattr(language, word), word


@pytest.mark.parametrize("name", HINTS)
def test_no_hint_hides_a_name_of_the_language(name: str) -> None:
    assert name not in language.PYTHON
    assert name in ("sum", "bool") or not hasattr(language, name)


def test_an_annotation_of_triton() -> None:
    with pytest.raises(Exception, match=r"unknown name `tl.constexpr`[^$]*use `tl.const`"):
        KernelDefinition.from_source("def f(BLOCK: tl.constexpr):\n    pass\n").specialise()
