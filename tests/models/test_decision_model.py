"""What a decision model's file says beside its tensors: its type and its temperatures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferro.models import errors
from ferro.models.decision_model import DecisionModel, temperatures
from ferro.models.gguf import GgufFile
from ferro.runtime import open_device
from ferro.runtime.device import Device
from tests.models import ggufs

HEADED = "lfm2 with a decision head"
TYPE, TEMPERATURE = "decision.type", "decision.temperature."


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with open_device("interpreter") as found:
        yield found


def found(folder: Path, **named: float) -> dict[str, float]:
    keys: dict[str, Any] = {TEMPERATURE + name: value for name, value in named.items()}
    return temperatures(GgufFile(ggufs.model(folder / "m.gguf", HEADED, keys=keys)), "lfm2")


def test_temperatures_are_read_by_way_of_text(tmp_path: Path) -> None:
    read = found(tmp_path, **{"choice.11": 1.372515082359314, "noul.2": 1.6663223505020142})
    # the nearest float32 to 1.372515 and to 1.666322
    assert read == {"choice.11": 1.3725149631500244, "noul.2": 1.6663219928741455}
    assert found(tmp_path) == {}


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-7, float("nan"), float("inf"), "1"])
def test_temperatures_that_cannot_be(tmp_path: Path, value: Any) -> None:
    with pytest.raises(errors.WrongValue, match=f"lfm2.{TEMPERATURE}score"):
        found(tmp_path, score=value)


@pytest.mark.parametrize("kind", ["lfm2-d1", "clef"])
def test_other_types_are_refused(tmp_path: Path, device: Device, kind: str) -> None:
    path = ggufs.model(tmp_path / "m.gguf", HEADED, keys={TYPE: kind})
    with pytest.raises(errors.UnsupportedArchitecture, match=f"type `{kind}`") as caught:
        DecisionModel.open(path, device)
    assert ("is not published" in str(caught.value)) == (kind == "lfm2-d1")


def test_a_wrong_temperature_is_found_on_opening(tmp_path: Path, device: Device) -> None:
    keys = {TYPE: "lfm2-d1-omni", f"{TEMPERATURE}noul": -2.0}
    with pytest.raises(errors.WrongValue, match="a temperature of -2.0"):
        DecisionModel.open(ggufs.model(tmp_path / "m.gguf", HEADED, keys=keys), device)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, device: Device) -> None:
    path = ggufs.model(tmp_path / "m.gguf", HEADED, keys={TYPE: "lfm2-d1-omni"})
    info = GgufFile(path).tensors["cls.norm.weight"]
    data = bytearray(path.read_bytes())
    data[info.start : info.start + 4] = b"\x00\x00\xc0\x7f"
    path.write_bytes(data)
    with pytest.raises(errors.BadNumbers, match=r"cls\.norm\.weight"):
        DecisionModel.open(path, device)
