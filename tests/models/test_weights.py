"""Tensors as kernels take them: what is kept as it is, what is rounded, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ferro.dsl.quantised import Q8
from ferro.models import dequantise, weights
from ferro.models.errors import BadNumbers, MissingTensor, UnsupportedType, WrongShape
from ferro.models.gguf import GgufFile
from tests.models import ggufs
from tests.models.ggufs import TYPE

ROWS, COLS = 37, 512


def written(path: Path, tensors: dict[str, tuple[Any, str]]) -> GgufFile:
    """A file of tensors; data of uint8 is taken as blocks of its type."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=TYPE[kind])
    ggufs.finish(writer)
    return GgufFile(path)


def sample(kind: str, rows: int = ROWS, cols: int = COLS, seed: int = 0) -> np.ndarray:
    """Bytes [rows, ...] of a random matrix; the K types get random bits and small scales."""
    random = np.random.default_rng(seed)
    if not kind.endswith("_K"):
        values = random.standard_normal((rows, cols), dtype=np.float32)
        return gguf.quants.quantize(values, TYPE[kind])
    _, size = gguf.GGML_QUANT_SIZES[TYPE[kind]]
    blocks = random.integers(0, 256, (rows, cols // 256, size), np.uint8)
    small = random.uniform(1e-3, 1e-2, (rows, cols // 256, 2)).astype(np.float16).view(np.uint8)
    if kind == "Q6_K":
        blocks[..., -2:] = small[..., :2]
    else:
        blocks[..., :4] = small
    return blocks.reshape(rows, -1)


def same(found: Q8, wanted: Q8) -> bool:
    bits = found.scale.view(np.uint16) == wanted.scale.view(np.uint16)
    return found.shape == wanted.shape and bool((found.q == wanted.q).all() and bits.all())


def test_q8_0_is_taken_bit_for_bit(tmp_path: Path) -> None:
    blocks = np.random.default_rng(0).integers(0, 256, (ROWS, COLS // 32, 34), np.uint8)
    blocks[..., 1] &= 0xBB  # no infinities, no NaN
    file = written(tmp_path / "q8.gguf", {"a.weight": (blocks.reshape(ROWS, -1), "Q8_0")})
    found = weights.q8(file, "a.weight")
    assert found.q.tobytes() == blocks[..., 2:].tobytes() and found.q.min() == -128
    assert found.scale.tobytes() == blocks[..., :2].tobytes()


LEFT = {"Q4_1": 0.2, "Q5_1": 0.45, "Q4_K": 0.4, "Q5_K": 0.55}  # of the squared error
RULED = [kind for kind in dequantise.TYPES if kind not in {"Q8_0", *dequantise.LEVELS}]


@pytest.mark.parametrize("kind", RULED)
@pytest.mark.parametrize("chunk", [1, 4 * COLS, 1 << 20])
def test_other_types_follow_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chunk: int
) -> None:
    monkeypatch.setattr(weights, "CHUNK", chunk)
    blocks = sample(kind)
    file = written(tmp_path / "any.gguf", {"a.weight": (blocks, kind)})
    exact = gguf.quants.dequantize(blocks, TYPE[kind])
    assert same(weights.q8(file, "a.weight"), Q8.quantize(exact))
    assert (weights.f32(file, "a.weight") == exact).all()


@pytest.mark.parametrize("kind", dequantise.LEVELS)
def test_few_levels_keep_their_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    blocks = sample(kind)
    file = written(tmp_path / "few.gguf", {"a.weight": (blocks, kind)})
    exact = gguf.quants.dequantize(blocks, TYPE[kind])
    found = weights.q8(file, "a.weight")
    monkeypatch.setattr(weights, "CHUNK", 1)
    assert same(weights.q8(file, "a.weight"), found)
    error, ruled = (((m.dequantize() - exact) ** 2).sum() for m in (found, Q8.quantize(exact)))
    assert error == 0 if kind in ("Q4_0", "Q5_0") else error < LEFT[kind] * ruled


@pytest.mark.parametrize("kind", weights.SMALL)
def test_types_of_four_bits_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    blocks = sample(kind)
    file = written(tmp_path / "small.gguf", {"a.weight": (blocks, kind)})
    exact = gguf.quants.dequantize(blocks, TYPE[kind])
    found = weights.q4(file, "a.weight")
    monkeypatch.setattr(weights, "CHUNK", 1)
    again = weights.q4(file, ["a.weight", "a.weight"])
    assert (again.q == np.concatenate([found.q, found.q])).all()
    assert (again.minimum[ROWS:] == found.minimum).all()
    # the scales of Q4_K are products, here rounded to 11 bits; all else is exact but for the sum
    near = np.abs(exact).max() * (2.0**-10 if kind == "Q4_K" else 2.0**-22)
    assert np.abs(found.dequantize() - exact).max() <= near


def test_scales_of_four_bits_must_be_finite(tmp_path: Path) -> None:
    blocks = sample("Q4_1").reshape(-1, 20)
    blocks[3, :2] = np.array([np.inf], np.float16).view(np.uint8)
    file = written(tmp_path / "bad.gguf", {"a.weight": (blocks.reshape(ROWS, -1), "Q4_1")})
    with pytest.raises(BadNumbers, match=r"a\.weight"):
        weights.q4(file, "a.weight")


def test_blocks_without_a_grid_follow_the_rule(tmp_path: Path) -> None:
    """All levels the same, or close together and far from zero."""
    blocks = sample("Q4_1").reshape(-1, 20)
    blocks[3, :2] = 0
    blocks[5, :4] = np.array([1e-3, 10], np.float16).view(np.uint8)
    blocks[7, :4] = 0
    blocks = blocks.reshape(ROWS, -1)
    file = written(tmp_path / "same.gguf", {"a.weight": (blocks, "Q4_1")})
    ruled = Q8.quantize(gguf.quants.dequantize(blocks, TYPE["Q4_1"]))
    found = weights.q8(file, "a.weight")
    for i in (3, 5, 7):
        assert (found.q[0, 32 * i : 32 * i + 32] == ruled.q[0, 32 * i : 32 * i + 32]).all()
        assert found.scale[0, i] == ruled.scale[0, i]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("cols", [1, 33, 200])
def test_rows_are_padded_with_zeros(tmp_path: Path, kind: str, cols: int) -> None:
    data = sample(kind, cols=cols)
    file = written(tmp_path / "odd.gguf", {"a.weight": (data, kind)})
    exact = gguf.quants.dequantize(data, TYPE[kind])
    found = weights.q8(file, "a.weight")
    assert same(found, Q8.quantize(exact)) and found.cols == cols
    assert found.q.shape[1] % 32 == 0 and not found.q[:, cols:].any()


def test_rows_of_several_tensors_are_stacked(tmp_path: Path) -> None:
    tensors = {"q.weight": (sample("Q8_0"), "Q8_0"), "k.weight": (sample("Q4_K", 5), "Q4_K")}
    file = written(tmp_path / "parts.gguf", tensors)
    both = weights.q8(file, ["q.weight", "k.weight"])
    one, two = weights.q8(file, "q.weight"), weights.q8(file, "k.weight")
    stacked = Q8(np.concatenate([one.q, two.q]), np.concatenate([one.scale, two.scale]))
    assert same(both, stacked)


def test_what_cannot_be_stacked(tmp_path: Path) -> None:
    tensors = {"a.weight": (sample("F32"), "F32"), "b.weight": (sample("F32", cols=64), "F32")}
    tensors["v.weight"] = (np.ones(COLS, np.float32), "F32")
    file = written(tmp_path / "parts.gguf", tensors)
    for other in ("b.weight", "v.weight"):
        with pytest.raises(WrongShape, match=f"`{other}` .* is no matrix with 512 columns"):
            weights.q8(file, ["a.weight", other])
    with pytest.raises(WrongShape, match=r"`v\.weight`"):
        weights.q8(file, "v.weight")
    with pytest.raises(MissingTensor, match=r"`c\.weight`"):
        weights.q8(file, ["a.weight", "c.weight"])


def test_f32_keeps_the_shape(tmp_path: Path) -> None:
    taps = np.random.default_rng(3).standard_normal((8, 1, 3)).astype(np.float32)
    tensors = {"conv.weight": (taps, "F32"), "norm.weight": (taps[:, 0, 0].copy(), "F32")}
    file = written(tmp_path / "shapes.gguf", tensors)
    assert (weights.f32(file, "conv.weight") == taps).all()
    assert (weights.f32(file, "norm.weight") == taps[:, 0, 0]).all()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_1", "Q8_0", "Q6_K"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_numbers_that_are_not_finite(tmp_path: Path, kind: str, value: float) -> None:
    data = sample(kind).view(np.uint8).reshape(ROWS, -1).copy()
    bad = np.float32(value) if kind == "F32" else np.float16(value)
    raw = bad.view(np.uint32 if kind == "F32" else np.uint16).tobytes()
    raw = b"\xc0\x7f" if kind == "BF16" else raw
    place = slice(data.shape[1] - 2, None) if kind == "Q6_K" else slice(0, len(raw))
    data[9, place] = np.frombuffer(raw, np.uint8)
    file = written(tmp_path / "bad.gguf", {"a.weight": (data, kind)})
    with pytest.raises(BadNumbers, match=r"tensor `a\.weight`: .* not finite"):
        weights.q8(file, "a.weight")


def test_numbers_too_large_for_a_scale(tmp_path: Path) -> None:
    data = np.full((2, 32), 1e8, np.float32)
    file = written(tmp_path / "large.gguf", {"a.weight": (data, "F32")})
    with pytest.raises(BadNumbers, match=r"tensor `a\.weight`: .* does not fit in float16"):
        weights.q8(file, "a.weight")
    assert (weights.f32(file, "a.weight") == data).all()


def test_types_that_are_not_read(tmp_path: Path) -> None:
    file = written(tmp_path / "q2.gguf", {"a.weight": (np.zeros((2, 84), np.uint8), "Q2_K")})
    for read in (weights.q8, weights.f32):
        with pytest.raises(UnsupportedType, match=r"`a\.weight` has the type Q2_K.*Q4_K"):
            read(file, "a.weight")


def test_only_matrices_of_weights_become_q8(tmp_path: Path) -> None:
    shapes = {
        "blk.0.attn_q.weight": True,
        "token_embd.weight": True,
        "blk.0.shortconv.conv.weight": False,
        "blk.0.attn_q.bias": False,
    }
    tensors = {name: (np.ones((2, 32), np.float32), "F32") for name in shapes}
    tensors["blk.0.attn_norm.weight"] = (np.ones(32, np.float32), "F32")
    tensors["v.patch_embd.weight"] = (np.ones((2, 3, 4, 4), np.float32), "F32")
    file = written(tmp_path / "kinds.gguf", tensors)
    found = {name: weights.is_matrix(info) for name, info in file.tensors.items()}
    kept = {"blk.0.attn_norm.weight": False, "v.patch_embd.weight": False}
    assert found == shapes | kept


# --- float32 matrices ----------------------------------------------------------------------------


def test_turned_matrices_stand_side_by_side(tmp_path: Path) -> None:
    file = GgufFile(ggufs.model(tmp_path / "model.gguf", "lfm2", "Q4_0"))
    names = [f"blk.1.attn_{part}.weight" for part in "qkv"]
    wanted = np.concatenate([weights.f32(file, name) for name in names])
    found = weights.turned(file, names)
    assert found.flags.c_contiguous and (found == wanted.T).all()
    assert (weights.f32(file, names) == wanted).all()


def test_turned_matrices_are_of_equal_width(tmp_path: Path) -> None:
    file = GgufFile(ggufs.model(tmp_path / "model.gguf", "lfm2"))
    names = ["blk.1.attn_q.weight", "blk.1.ffn_down.weight"]
    for read in (weights.turned, weights.f32):
        with pytest.raises(WrongShape, match=r"`blk\.1\.ffn_down\.weight`"):
            read(file, names)
    with pytest.raises(WrongShape, match="is no matrix"):
        weights.turned(file, "token_embd_norm.weight")


def test_vectors_stand_one_after_the_other(tmp_path: Path) -> None:
    file = GgufFile(ggufs.model(tmp_path / "model.gguf", "lfm2"))
    names = ["blk.0.attn_norm.weight", "blk.1.attn_q_norm.weight"]
    wanted = np.concatenate([weights.f32(file, name) for name in names])
    assert (weights.f32(file, names) == wanted).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("read", [weights.f32, weights.turned])
def test_float_tensors_that_are_not_finite(tmp_path: Path, value: float, read: Any) -> None:
    data = np.ones((4, 32), np.float32)
    data[3, 5] = value
    file = written(tmp_path / "bad.gguf", {"a.weight": (data, "F32")})
    with pytest.raises(BadNumbers, match=r"bad\.gguf: tensor `a\.weight` has .* not finite"):
        read(file, "a.weight")
