"""Tiny models against llama.cpp's recorded answers, and both against float64."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from ferro.models.language_model import LanguageModel
from ferro.models.passes import Piece
from ferro.runtime import open_device
from ferro.runtime.device import Device
from tests.models import reference64, tiny
from tests.stacks import Stack, quick_stack

__all__ = ["quick_stack"]

WITHIN = {"llama-tiny": 1e-3, "lfm2-tiny": 1e-3, "gemma3-tiny": 5e-3}
FARTHER = 1.15
SHORT, ALL = (1, 7), (1, 7, 100)


@lru_cache(maxsize=None)
def exact(name: str, kind: str, n: int) -> Any:
    ids = tiny.answers(name, kind)[f"ids_{n}"]
    return kept(reference64.Model(tiny.path(name, kind)).logits(ids))


def kept(logits: Any) -> Any:
    """The rows that are recorded: of long prompts every tenth."""
    return logits[::10] if len(logits) > 10 else logits


def logits(device: Device, name: str, kind: str, lengths: tuple[int, ...], **how: Any) -> list[Any]:
    form = {"f32": "f32", "q8_0": "q8"}[kind]
    path, answers = tiny.path(name, kind), tiny.answers(name, kind)
    with LanguageModel.open(
        path, device, weights=form, cache="f32", context=max(lengths), **how
    ) as model:
        prompts = [tuple(answers[f"ids_{n}"].tolist()) for n in lengths]
        return [kept(model.forward([Piece(0, 0, ids, len(ids))])) for ids in prompts]


def check_float32(found: list[Any], name: str, lengths: tuple[int, ...]) -> None:
    answers = tiny.answers(name, "f32")
    for ours, n in zip(found, lengths, strict=True):
        assert np.abs(ours - answers[f"logits_{n}"]).max() < WITHIN[name]
        assert np.abs(ours - exact(name, "f32", n)).max() < 1e-4


def check_quantised(found: list[Any], name: str, lengths: tuple[int, ...]) -> None:
    answers = tiny.answers(name, "q8_0")
    theirs = np.concatenate([answers[f"logits_{n}"] for n in lengths])
    true = np.concatenate([exact(name, "q8_0", n) for n in lengths])
    ours = np.concatenate(found)
    own = rms(theirs - true)
    assert rms(ours - true) <= FARTHER * own
    second, first = np.sort(theirs, axis=1)[:, -2:].T
    clear = first - second > 2 * own
    assert clear.any()
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1))[clear].all()


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(x * x)))


@pytest.mark.parametrize("name", tiny.NAMES)
def test_float32_weights_on_the_interpreter(name: str) -> None:
    with open_device("interpreter") as device:
        check_float32(logits(device, name, "f32", SHORT), name, SHORT)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_quantised_weights_on_the_interpreter(name: str) -> None:
    with open_device("interpreter") as device:
        check_quantised(logits(device, name, "q8_0", SHORT), name, SHORT)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_float32_weights_on_a_device(name: str, quick_stack: Stack) -> None:
    found = logits(quick_stack.device, name, "f32", ALL, target=quick_stack.target)
    check_float32(found, name, ALL)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_quantised_weights_on_a_device(name: str, quick_stack: Stack) -> None:
    found = logits(quick_stack.device, name, "q8_0", ALL, target=quick_stack.target)
    check_quantised(found, name, ALL)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_greedy_continuations_are_the_same(name: str, quick_stack: Stack) -> None:
    answers = tiny.answers(name, "f32")
    with LanguageModel.open(
        tiny.path(name, "f32"),
        quick_stack.device,
        weights="f32",
        cache="f32",
        context=128,
        target=quick_stack.target,
    ) as model:
        for n in ALL:
            ids = answers[f"ids_{n}"].tolist()
            best = model.forward([Piece(0, 0, tuple(ids))])[0].argmax()
            found = [int(best)]
            while len(found) < 16:
                best = model.forward([Piece(0, n + len(found) - 1, (found[-1],))])[0].argmax()
                found.append(int(best))
            assert found == answers[f"greedy_{n}"].tolist()
