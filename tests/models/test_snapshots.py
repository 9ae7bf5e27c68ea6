"""What a slot held, saved and restored: the next tokens' logits are the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ferro.models.language_model import LanguageModel
from ferro.models.passes import Piece
from ferro.runtime import open_device
from ferro.runtime.device import Device
from tests.models import tiny

IDS = tuple(np.random.default_rng(5).integers(20, 500, 60).tolist())


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with open_device() as opened:
        if opened.info.kind == "interpreter":
            pytest.skip("no OpenCL device")
        yield opened


def opened(device: Device, name: str, cache: str = "f16") -> LanguageModel:
    return LanguageModel.open(tiny.path(name, "q8_0"), device, cache=cache, context=64, slots=3)


def after(model: LanguageModel, slot: int, held: int) -> bytes:
    """The logits of the tokens that follow, bit for bit."""
    return model.forward([Piece(slot, held, IDS[held:], len(IDS) - held)]).tobytes()


@pytest.mark.device
@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.parametrize("cache", ["f16", "f32", "int8"])
def test_a_restored_slot_goes_on_as_the_one_that_was_saved(
    device: Device, name: str, cache: str
) -> None:
    with opened(device, name, cache) as model:
        model.forward([Piece(0, 0, IDS[:37])])
        kept = model.save(0)
        assert kept.nbytes == model.snapshot_bytes(37)
        want = after(model, 0, 37)
        model.forward([Piece(2, 0, IDS[5:40])])
        model.restore(kept, 2)
        assert after(model, 2, 37) == want
        kept.release()


@pytest.mark.device
def test_other_slots_are_left_as_they_are(device: Device) -> None:
    with opened(device, "lfm2-tiny") as model:
        model.forward([Piece(0, 0, IDS[:20]), Piece(1, 0, IDS[:37])])
        kept = model.save(0)
        model.restore(kept, 2)
        want = after(model, 1, 37)
        model.forward([Piece(1, 0, IDS[:37])])
        assert after(model, 1, 37) == want


@pytest.mark.device
def test_a_beginning_is_restored_where_there_are_no_convolutions(device: Device) -> None:
    with opened(device, "llama-tiny") as model:
        assert model.rewinds
        model.forward([Piece(0, 0, IDS[:37])])
        kept = model.save(0)
        model.forward([Piece(0, 0, IDS[:20])])
        want = after(model, 0, 20)
        model.restore(kept, 1, 20)
        assert after(model, 1, 20) == want


@pytest.mark.device
def test_a_snapshot_s_memory_is_accounted_for_and_comes_back(device: Device) -> None:
    with opened(device, "lfm2-tiny") as model:
        assert not model.rewinds
        model.forward([Piece(0, 0, IDS[:30])])
        kept = model.save(0)
        assert device.memory()["cache"] == kept.nbytes
        kept.release()
        device.finish()
        assert not device.memory().get("cache")
