"""Opening models and running passes: options, refusals, memory, optional tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ferro.models import costs, language_model, loading, plans
from ferro.models.errors import BadNumbers, UnsupportedArchitecture, WrongValue
from ferro.models.gguf import GgufFile
from ferro.models.language_model import LanguageModel
from ferro.models.loaded import BadOption
from ferro.models.passes import ContextFull, PassError, Piece
from ferro.models.weights import f32
from ferro.runtime import DeviceLost, OutOfMemory, open_device
from ferro.runtime.device import Device
from tests.models import ggufs, reference64, tiny

IDS = (3, 1, 39, 7, 7)


@pytest.fixture
def device() -> Iterator[Device]:
    with open_device("interpreter") as opened:
        yield opened


def written(folder: Path, name: str = "llama", **changes: Any) -> Path:
    keys = {**changes.pop("keys", {})}
    return ggufs.model(
        folder / "model.gguf", name, changes.pop("kind", "F32"), keys=keys, **changes
    )


def opened(path: Path, device: Device, **how: Any) -> LanguageModel:
    return LanguageModel.open(path, device, **{"weights": "f32", "cache": "f32", **how})


def close_to_float64(path: Path, device: Device, ids: tuple[int, ...] = IDS) -> None:
    with opened(path, device) as model:
        found = model.forward([Piece(0, 0, ids, len(ids))])
    assert np.abs(found - reference64.Model(path).logits(list(ids))).max() < 2e-4


# --- what files may hold -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "lfm2", "gemma3"])
def test_tied_and_untied_heads(tmp_path: Path, device: Device, name: str) -> None:
    close_to_float64(written(tmp_path, name), device)
    output = {"output.weight": (ggufs.TOKENS, ggufs.WIDTH)}
    close_to_float64(written(tmp_path, name, shapes=output), device)


def test_a_tied_head_is_kept_once(tmp_path: Path, device: Device) -> None:
    for kind, form in (("Q8_0", "q8"), ("F32", "f32")):
        path = written(tmp_path, kind=kind)
        with opened(path, device, weights=form):
            held = device.memory()
        file = GgufFile(path)
        assert held["weights"] <= costs.weights(file)[form]


def test_biases(tmp_path: Path, device: Device) -> None:
    q, kv = ggufs.HEADS * ggufs.HEAD, ggufs.KV_HEADS * ggufs.HEAD
    sizes = {"attn_q": q, "attn_k": kv, "attn_v": kv, "attn_output": ggufs.WIDTH}
    sizes |= {"ffn_gate": ggufs.FF, "ffn_up": ggufs.FF, "ffn_down": ggufs.WIDTH}
    shapes = {f"blk.{i}.{n}.bias": (size,) for i in (0, 2) for n, size in sizes.items()}
    close_to_float64(written(tmp_path, shapes=shapes), device)


def test_one_tensor_of_queries_keys_and_values(tmp_path: Path, device: Device) -> None:
    """The rows of three tensors are those of one, on both kinds of weights."""
    path = written(tmp_path, kind="Q8_0")
    file = GgufFile(path)
    fused = tmp_path / "fused.gguf"
    writer = gguf.GGUFWriter(fused, "llama")
    for key, value in file.metadata.items():
        if key.startswith("llama."):
            ggufs.add(writer, key, value)
    ggufs.tokens(writer)
    for name in file.tensors:
        if not name.endswith(("attn_q.weight", "attn_k.weight", "attn_v.weight")):
            ggufs.add_tensor(writer, name, f32(file, name), "Q8_0")
    for i in range(ggufs.LAYERS):
        rows = [f32(file, f"blk.{i}.attn_{n}.weight") for n in "qkv"]
        ggufs.add_tensor(writer, f"blk.{i}.attn_qkv.weight", np.concatenate(rows), "Q8_0")
    ggufs.finish(writer)
    for form in ("q8", "f32"):
        with (
            opened(path, device, weights=form) as three,
            opened(fused, device, weights=form) as one,
        ):
            pieces = [Piece(0, 0, IDS, len(IDS))]
            assert three.forward(pieces).tobytes() == one.forward(pieces).tobytes()


def test_scaled_positions_and_divisors(tmp_path: Path, device: Device) -> None:
    """Positions divided by 4 are those of frequencies divided by 4."""
    keys = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    pieces = [Piece(0, 0, IDS, len(IDS))]
    found = []
    for write in (lambda: written(tmp_path, keys=keys), lambda: divided(tmp_path, 4.0)):
        with opened(write(), device) as model:
            found.append(model.forward(pieces))
    with opened(written(tmp_path), device) as model:
        found.append(model.forward(pieces))
    assert found[0].tobytes() == found[1].tobytes() != found[2].tobytes()
    with pytest.raises(BadNumbers, match=r"`rope_freqs\.weight` has values not above 0"):
        opened(divided(tmp_path, 0.0), device)


def divided(folder: Path, by: float) -> Path:
    size = ggufs.HEAD // 2
    path = written(folder, shapes={"rope_freqs.weight": (size,)})
    info = GgufFile(path).tensor("rope_freqs.weight")
    data = bytearray(path.read_bytes())
    data[info.start : info.stop] = np.full(size, by, np.float32).tobytes()
    path.write_bytes(data)
    return path


def test_a_part_of_a_head_may_turn(tmp_path: Path, device: Device) -> None:
    found = []
    for rotated in (ggufs.HEAD, ggufs.HEAD // 2):
        path = written(tmp_path, "lfm2", keys={"rope.dimension_count": rotated})
        with opened(path, device) as model:
            found.append(model.forward([Piece(0, 0, IDS, len(IDS))]))
    assert (found[0][0] == found[1][0]).all()  # position 0 does not turn
    assert (found[0][1:] != found[1][1:]).any() and np.isfinite(found[1]).all()


# --- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gemma-embedding2", "lfm2 with a decision head"])
def test_encoders_are_named(tmp_path: Path, device: Device, name: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match="is an encoder: it generates no text"):
        opened(written(tmp_path, name), device)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"weights": "q2"}, r"weights `q2` is not known \(known: q4, q8, f32\)"),
        ({"cache": "f64"}, r"cache `f64` is not known \(known: f32, f16, int8\)"),
        ({"context": 0}, "context must be at least 1, got 0"),
        ({"slots": -1}, "slots must be at least 1, got -1"),
    ],
)
def test_options_that_mean_nothing(
    tmp_path: Path, device: Device, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadOption, match=said) as caught:
        opened(written(tmp_path), device, **how)
    assert caught.value.exit_code == 2


def test_heads_that_an_int8_cache_does_not_take(tmp_path: Path, device: Device) -> None:
    with pytest.raises(WrongValue, match="choose a cache of another type"):
        opened(written(tmp_path), device, cache="int8")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "token_embd.weight"),
        ("llama", "blk.1.attn_norm.weight"),
        ("llama", "blk.2.attn_q.bias"),
        ("llama", "rope_freqs.weight"),
        ("llama", "output_norm.weight"),
        ("lfm2", "blk.0.shortconv.conv.weight"),
        ("lfm2", "blk.1.attn_k_norm.weight"),
        ("gemma3", "blk.2.post_ffw_norm.weight"),
    ],
)
def test_numbers_that_are_not_finite_are_refused_wherever_they_are(
    tmp_path: Path, device: Device, name: str, tensor: str, value: float
) -> None:
    biases = {f"blk.2.attn_{n}.bias": (ggufs.KV_HEADS * ggufs.HEAD,) for n in "kv"}
    biases["blk.2.attn_q.bias"] = (ggufs.HEADS * ggufs.HEAD,)
    if tensor == "rope_freqs.weight":
        biases[tensor] = (ggufs.HEAD // 2,)
    shapes = biases if name == "llama" else None
    path = written(tmp_path, name, shapes=shapes)
    info = GgufFile(path).tensor(tensor)
    data = bytearray(path.read_bytes())
    data[info.stop - 4 : info.stop] = np.float32(value).tobytes()
    path.write_bytes(data)
    for weights in ("q4", "f32"):
        with pytest.raises(BadNumbers, match=f"`{tensor}`"):
            opened(path, device, weights=weights)


def test_what_a_model_was_made_for_is_the_context(tmp_path: Path, device: Device) -> None:
    with opened(written(tmp_path), device) as model:
        assert (model.context, model.slots, model.device) == (128, 1, device)
    with opened(written(tmp_path, keys={"context_length": 1 << 20}), device) as model:
        assert model.context == language_model.CONTEXT


def test_what_does_not_fit_is_refused_before_weights_are_read(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(OutOfMemory, match="and the caches") as caught:
        opened(written(tmp_path), device, context=1 << 28, slots=1 << 10)
    assert caught.value.exit_code == 3


def test_memory_is_counted_and_given_back(tmp_path: Path, device: Device) -> None:
    with opened(written(tmp_path, "lfm2"), device, context=64) as model:
        model.forward([Piece(0, 0, IDS)])
        held = device.memory()
        assert all(held[purpose] > 0 for purpose in ("weights", "kv", "scratch"))
        del model
    assert {device.memory()[purpose] for purpose in ("weights", "kv")} == {0}


# --- passes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        (Piece(0, 0, (1,) * 9), ContextFull),
        (Piece(1, 0, (1,)), PassError),
        (Piece(0, 3, (1,)), PassError),
        (Piece(0, 0, (40,)), PassError),
        (Piece(0, 0, (1,) * 2000), PassError),
    ],
)
def test_refused_passes_change_nothing(
    tmp_path: Path, device: Device, piece: Piece, kind: type[PassError]
) -> None:
    with opened(written(tmp_path, "lfm2"), device, context=8) as model:
        wanted = model.forward([Piece(0, 0, IDS[:3], 3)])
        model.forward([Piece(0, 0, IDS[:2])])
        with pytest.raises(kind):
            model.forward([piece])
        assert model.forward([Piece(0, 2, IDS[2:3])]).tobytes() == wanted[-1:].tobytes()


def test_a_slot_that_begins_anew_remembers_nothing(tmp_path: Path, device: Device) -> None:
    for name in ("lfm2", "llama"):
        with opened(written(tmp_path, name), device, context=16) as model:
            wanted = model.forward([Piece(0, 0, IDS)])
            model.forward([Piece(0, 0, tuple(reversed(IDS)) * 3)])
            assert model.forward([Piece(0, 0, IDS)]).tobytes() == wanted.tobytes()


def test_plans_of_few_shapes_are_kept(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    record = plans.Plans._record
    monkeypatch.setattr(
        plans.Plans, "_record", lambda self, shape: made.append(shape) or record(self, shape)
    )
    with opened(written(tmp_path), device) as model:
        for n in (1, 2, 1, 2, 1):
            model.forward([Piece(0, 0, (1,) * n)])
        assert len(made) == 2
        monkeypatch.setattr(plans, "HELD", 0)
        for n in (5, 9, 5):
            model.forward([Piece(0, 0, (1,) * n)])
        assert len(made) == 5


def test_the_tokenizer_is_the_file_s(device: Device) -> None:
    with LanguageModel.open(tiny.path("lfm2-tiny", "q8_0"), device, context=8) as model:
        assert model.tokenizer.encode("<|im_start|>") == [1, 6]
        assert model.hyperparameters.vocabulary == len(model.tokenizer)


def test_a_model_of_a_lost_device_is_closed() -> None:
    with open_device("pocl") as lost:
        with LanguageModel.open(tiny.path("lfm2-tiny", "q8_0"), lost, context=8) as model:
            model.forward([Piece(0, 0, (1, 2))])
            lost.queue.watchdog.lose("no answer")
            with pytest.raises(DeviceLost, match="no answer"):
                model.forward([Piece(0, 2, (3,))])
        with pytest.raises(DeviceLost, match="no answer"):
            lost.finish()
