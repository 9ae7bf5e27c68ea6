"""Slots: what they take, what they refuse, and how far each way of storing is from float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ferro.models import cache as caches
from ferro.models.cache import KINDS, Cache
from ferro.models.errors import WrongValue
from ferro.models.hyperparameters import Hyperparameters, Layer
from ferro.models.language_model import LanguageModel
from ferro.models.passes import ContextFull, PassError, Piece
from ferro.runtime import open_device
from tests.models import tiny
from tests.stacks import Stack, quick_stack

__all__ = ["quick_stack"]

ATTENDS, CONVOLVES = Layer(4, 2, 64, 96), Layer(4, 0, 64, 96)
PLAIN = Hyperparameters("llama", 256, 40, 128, 1e-5, (ATTENDS, ATTENDS))
MIXED = replace(PLAIN, layers=(CONVOLVES, ATTENDS, CONVOLVES), taps=3)


def made(what: Hyperparameters, kind: str = "f16", context: int = 10, slots: int = 2) -> Cache:
    return Cache(open_device("interpreter"), what, kind, context, slots)


@pytest.mark.parametrize("kind", KINDS)
def test_what_slots_take(kind: str) -> None:
    with open_device("interpreter") as device:
        Cache(device, MIXED, kind, 10, 2)
        held = Cache(device, MIXED, kind, 10, 2)
        assert device.memory()["kv"] == caches.nbytes(MIXED, kind, 10, 2)
        held.release()
        assert device.memory()["kv"] == 0


def test_every_layer_has_what_its_kernels_take() -> None:
    found = made(MIXED, "int8").layers
    assert [sorted(buffers) for buffers in found] == [
        ["state"],
        ["k", "k_scale", "v", "v_scale"],
        ["state"],
    ]
    assert found[0]["state"].shape == (2, 2, 256)
    assert found[1]["k"].shape == (20, 2, 64) and found[1]["v_scale"].shape == (20, 2, 2)


def refused(cache: Cache, piece: Piece, kind: type[PassError] = PassError) -> str:
    with pytest.raises(kind) as caught:
        cache.check(piece)
    return str(caught.value)


@pytest.mark.parametrize("slot", [-1, 2])
def test_slots_that_there_are_not(slot: int) -> None:
    said = refused(made(PLAIN), Piece(slot, 0, (1,)))
    assert said == f"there is no slot {slot} (there are 2)"


def test_a_full_context_is_counted() -> None:
    cache = made(PLAIN)
    cache.check(Piece(0, 0, (1,) * 10))
    said = refused(cache, Piece(0, 0, (1,) * 11), ContextFull)
    assert said == "the context is full: 11 tokens in a context of 10"


def test_pieces_go_on_from_what_a_slot_holds() -> None:
    cache = made(PLAIN)
    cache.advance([Piece(1, 0, (1,) * 4)])
    cache.check(Piece(1, 4, (1,)))
    said = refused(cache, Piece(1, 5, (1,)))
    assert said == "a piece starts at position 5, but slot 1 holds 4 tokens"
    assert "slot 0 holds 0" in refused(cache, Piece(0, 4, (1,)))


def test_keys_can_be_written_again_and_states_cannot() -> None:
    for what in (PLAIN, MIXED):
        cache = made(what)
        cache.advance([Piece(0, 0, (1,) * 4)])
        cache.check(Piece(0, 0, (1,)))
        if what is PLAIN:
            cache.check(Piece(0, 2, (1,)))
            cache.advance([Piece(0, 2, (1,))])
            assert "slot 0 holds 3" in refused(cache, Piece(0, 4, (1,)))
        else:
            assert "stand at 4" in refused(cache, Piece(0, 2, (1,)))


@pytest.mark.parametrize(
    ("layer", "kind", "said"),
    [
        (Layer(18, 2, 64, 96), "f16", "18 heads of queries share 2 of keys and values"),
        (Layer(4, 2, 48, 96), "int8", "heads of 48 cannot be stored as int8"),
    ],
)
def test_heads_that_kernels_do_not_have(layer: Layer, kind: str, said: str) -> None:
    with pytest.raises(WrongValue, match=said):
        caches.check_heads("model.gguf", replace(PLAIN, layers=(CONVOLVES, layer)), kind)
    caches.check_heads("model.gguf", MIXED, kind)


# Root mean square of the logits' difference, in parts of that of the logits, on text.
FAR = {"f16": 0.001, "int8": 0.02}
TEXT = (
    "People ask where the station is, and a compiler turns a small language into fast code. "
    "The kitchen needs bread while the river runs past the old stone bridge."
)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_how_far_caches_are_from_float32(name: str, quick_stack: Stack) -> None:
    found = {kind: logits(name, kind, quick_stack) for kind in KINDS}
    for kind, most in FAR.items():
        difference = found[kind] - found["f32"]
        assert 0 < rms(difference) < most * rms(found["f32"]), kind


def logits(name: str, kind: str, stack: Stack) -> Any:
    """With float32 weights: nothing else is rounded."""
    path = tiny.path(name, "f32")
    with LanguageModel.open(
        path, stack.device, weights="f32", cache=kind, context=128, target=stack.target
    ) as model:
        ids = tuple(model.tokenizer.encode(TEXT))
        return model.forward([Piece(0, 0, ids, len(ids))])


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(x * x)))
