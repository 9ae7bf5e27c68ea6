"""Weights on devices: the numbers of the file, counted, and a bar where it takes long."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ferro import report
from ferro.codegen.layouts import q8_bytes
from ferro.models import costs, loading, weights
from ferro.models.architectures import recognise
from ferro.models.errors import BadNumbers, MissingTensor
from ferro.models.gguf import GgufFile
from ferro.models.loading import Part
from ferro.runtime import open_device
from ferro.runtime.errors import OutOfMemory
from kernels_src.embedding import embed_q8
from tests.models import ggufs
from tests.stacks import Stack, quick_stack

__all__ = ["quick_stack"]


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    return GgufFile(ggufs.model(tmp_path / "model.gguf", "lfm2", "Q4_0"))


def test_every_tensor_by_itself(file: GgufFile) -> None:
    with open_device("interpreter") as device:
        buffers = loading.load(file, device, loading.parts(file))
        assert set(buffers) == set(file.tensors)
        for name, info in file.tensors.items():
            found = buffers[name]
            if weights.is_matrix(info):
                wanted = weights.q8(file, name)
                assert found.format == "q8" and found.shape == info.shape
                assert (found.memory.q == wanted.q).all() and (
                    found.memory.scale == wanted.scale
                ).all()
            else:
                assert found.dtype == np.float32 and (found.read() == weights.f32(file, name)).all()
        assert device.memory()["weights"] == sum(buffer.nbytes for buffer in buffers.values())


def test_all_in_float32(file: GgufFile) -> None:
    with open_device("interpreter") as device:
        buffers = loading.load(file, device, loading.parts(file, "f32"))
        for name, buffer in buffers.items():
            assert (buffer.read() == weights.f32(file, name)).all()
        assert device.memory()["weights"] == costs.weights(file)["f32"]


def test_rows_of_several_tensors_under_one_name(file: GgufFile) -> None:
    names = tuple(f"blk.1.attn_{part}.weight" for part in "qkv")
    part = Part("blk.1.attn_qkv", names)
    with open_device("interpreter") as device:
        buffers = loading.load(file, device, [part])
        assert list(buffers) == ["blk.1.attn_qkv"]
        assert (buffers["blk.1.attn_qkv"].memory.q == weights.q8(file, names).q).all()
    rows = (ggufs.HEADS + 2 * ggufs.KV_HEADS) * ggufs.HEAD
    assert loading.kept_bytes(file, part) == q8_bytes(rows, ggufs.WIDTH)


def test_a_device_reads_the_numbers_of_the_file(file: GgufFile, quick_stack: Stack) -> None:
    name, tokens = "token_embd.weight", np.array([3, 0, 39, 7], np.int32)
    before = quick_stack.device.memory()["weights"]
    buffers = loading.load(file, quick_stack.device, loading.parts(file), quick_stack.target)
    held = quick_stack.device.memory()["weights"] - before
    assert held == costs.weights(file)["q8"]
    found = np.empty((4, ggufs.WIDTH), np.float32)
    quick_stack(embed_q8, w=buffers[name], tokens=tokens, y=found, scale=1.0)
    assert (found == weights.q8(file, name).dequantize()[tokens]).all()


def test_what_does_not_fit_is_refused_before_it_is_read(
    file: GgufFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "kept_bytes", lambda *_: 1 << 50)
    with open_device("interpreter") as device:
        with pytest.raises(OutOfMemory, match="the weights take .* MiB, interpreter has .* MiB"):
            loading.load(file, device, loading.parts(file))
        assert device.memory()["weights"] == 0


def test_a_tensor_that_fails_ends_the_loading(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for i in range(20):
        value = np.nan if i == 3 else 1.0
        writer.add_tensor(f"{i}.weight", np.full((4, 32), value, np.float32))
    ggufs.finish(writer)
    file = GgufFile(path)
    with open_device("interpreter") as device:
        with pytest.raises(BadNumbers, match=r"tensor `3\.weight`"):
            loading.load(file, device, loading.parts(file))
        with pytest.raises(MissingTensor, match="`absent`"):
            loading.load(file, device, [Part("x", ("absent",))])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("after", "shown"), [(0.0, True), (100.0, False)])
def test_a_bar_for_what_takes_long(
    file: GgufFile, monkeypatch: pytest.MonkeyPatch, after: float, shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(report.sys, "stderr", terminal)
    monkeypatch.setattr(loading, "SHOW_AFTER", after)
    monkeypatch.setattr(loading, "MEGA", 1000)
    with open_device("interpreter") as device:
        loading.load(file, device, loading.parts(file))
    total = costs.weights(file)["q8"] // 1000
    assert (f"{total}/{total}" in terminal.getvalue()) == shown


# --- costs ---------------------------------------------------------------------------------------


def written(folder: Path, name: str, **keys: Any) -> GgufFile:
    return GgufFile(ggufs.model(folder / "costs.gguf", name, keys=keys))


def test_cost_of_caches(tmp_path: Path) -> None:
    made = recognise(written(tmp_path, "llama"))
    numbers = 2 * 100 * ggufs.LAYERS * ggufs.KV_HEADS * ggufs.HEAD
    found = costs.kv_cache(made, 100)
    assert found == {"f32": 4 * numbers, "f16": 2 * numbers, "int8": numbers * 36 // 32}
    assert costs.state(made) == 0


def test_convolutions_keep_a_state_and_no_keys(tmp_path: Path) -> None:
    made = recognise(written(tmp_path, "lfm2"))
    assert costs.kv_cache(made, 10)["f32"] == 4 * 2 * 10 * ggufs.KV_HEADS * ggufs.HEAD
    assert costs.state(made) == 4 * 2 * 2 * ggufs.WIDTH


def test_encoders_keep_nothing(tmp_path: Path) -> None:
    for name in ("gemma-embedding2", "lfm2 with a decision head"):
        made = recognise(written(tmp_path, name))
        assert costs.state(made) == 0 and set(costs.kv_cache(made, 10).values()) == {0}
