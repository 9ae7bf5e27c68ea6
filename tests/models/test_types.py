"""Every tensor type in every place of every architecture: near float64, and one meaning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import pytest

from ferro.models.language_model import LanguageModel
from ferro.models.passes import Piece
from ferro.runtime import open_device
from ferro.runtime.device import Device
from tests.models import ggufs, reference64, tiny
from tests.stacks import FULL, Stack, quickest_stack

__all__ = ["quickest_stack"]

TYPE = gguf.GGMLQuantizationType
SIZES = gguf.constants.GGML_QUANT_SIZES
IDS = (3, 141, 59, 26, 53)
# Of float32 weights: rounding alone. Of the others: activations are rounded to 8 bits, and the
# values of all but Q8_0 and 4-bit types once more.
FAR = {"f32": 1e-5, "q4": 0.08}

# What makers of files mix, by the names of tensors (the first that fits). A type whose blocks do
# not fit the columns gives way to Q8_0, as in their tools.
MIXES: dict[str, dict[str, str]] = {
    "F16": {"": "F16"},
    "BF16": {"": "BF16"},
    "Q4_0": {"token_embd": "Q4_0", "output.": "Q6_K", "": "Q4_0"},
    "Q4_0 of Gemma": {"token_embd": "Q6_K", "": "Q4_0"},
    "Q4_1": {"": "Q4_1"},
    "Q5": {"token_embd": "Q5_0", "": "Q5_1"},
    "Q4_K_M": {"token_embd": "Q4_K", "output.": "Q6_K", "attn_v": "Q6_K", "": "Q4_K"},
    "Q5_K_M": {"token_embd": "Q5_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "": "Q5_K"},
    "Q6_K": {"": "Q6_K"},
    "one of each": {
        "attn_q": "Q4_0",
        "attn_k": "F16",
        "attn_v": "Q5_K",
        "attn_output": "Q5_1",
        "ffn_gate": "Q4_1",
        "ffn_up": "BF16",
        "ffn_down": "Q5_0",
        "in_proj": "Q4_K",
        "out_proj": "F32",
        "": "Q6_K",
    },
}
WRITERS = {"llama-tiny": tiny.llama, "lfm2-tiny": tiny.lfm2, "gemma3-tiny": tiny.gemma3}
_folder = TemporaryDirectory(prefix="ferro-types-")


class Writer(tiny.Writer):
    """Writes each matrix in the type that a mix says."""

    def __init__(self, file: Path, architecture: str, mix: dict[str, str]) -> None:
        super().__init__(file, architecture, "f32")
        self.mix = mix

    def matrix(self, name: str, *sizes: int, gain: float = 1.0, plain: bool = False) -> None:
        rows, cols = sizes[1], sizes[0]
        wanted = next(kind for part, kind in self.mix.items() if part in f"{name}.")
        kind = TYPE.F32 if plain else TYPE[wanted]
        if cols % SIZES[kind][0]:
            kind = TYPE.Q8_0
        if kind.name.endswith("_K"):
            data = blocks(self.random, rows, cols, kind, gain / np.sqrt(cols))
        else:
            values = self.random.standard_normal((rows, cols), dtype=np.float32)
            data = gguf.quants.quantize(values * np.float32(gain / np.sqrt(cols)), kind)
        self.add_tensor(f"{name}.weight", data, raw_dtype=kind)


def blocks(random: Any, rows: int, cols: int, kind: Any, size: float) -> Any:
    """Random blocks of a K type: uint8 [rows, bytes], values of about ``size``."""
    values, nbytes = SIZES[kind]
    found = random.integers(0, 256, (rows, cols // values, nbytes), np.uint8)
    # of these types the package writes none: scales lie at the end of Q6_K, else in front
    at = np.s_[..., -2:] if kind == TYPE.Q6_K else np.s_[..., :2]
    step = {TYPE.Q4_K: 0.004, TYPE.Q5_K: 0.002, TYPE.Q6_K: 0.0008}[kind] * size
    scales = np.full((rows, cols // values, 1), step, np.float16)
    found[at] = scales.view(np.uint8)
    if kind != TYPE.Q6_K:  # the least value is about minus half of the greatest
        found[..., 2:4] = (scales * {TYPE.Q4_K: 7, TYPE.Q5_K: 15}[kind]).view(np.uint8)
    return found.reshape(rows, -1)


@lru_cache(maxsize=None)
def path(name: str, mix: str) -> Path:
    file = Path(_folder.name) / f"{name}-{mix}.gguf"
    writer = Writer(file, name.split("-")[0], MIXES[mix])
    WRITERS[name](writer)
    writer.finish()
    return file


def logits(
    device: Device,
    file: Path,
    weights: str,
    cache: str = "f32",
    ids: Sequence[int] = IDS,
    **how: Any,
) -> Any:
    with LanguageModel.open(file, device, weights=weights, cache=cache, context=16, **how) as model:
        return model.forward([Piece(0, 0, tuple(ids), len(ids))])


@lru_cache(maxsize=None)
def exact(file: Path) -> Any:
    return reference64.Model(file).logits(list(IDS))


def distance(found: Any, true: Any) -> float:
    """Root mean square of the difference, in parts of that of the truth."""
    return float(np.sqrt(np.mean((found - true) ** 2) / np.mean(true**2)))


@lru_cache(maxsize=None)
def on_the_interpreter(file: Path, weights: str, cache: str = "f32") -> Any:
    with open_device("interpreter") as device:
        return logits(device, file, weights, cache)


ALL = [(name, mix) for name in tiny.NAMES for mix in MIXES]
FEW = [(name, "one of each") for name in tiny.NAMES]
FEW += [("gemma3-tiny", "Q4_0 of Gemma")]


@pytest.mark.parametrize(("name", "mix"), ALL if FULL else FEW)
def test_mixes_of_types(name: str, mix: str, quickest_stack: Stack) -> None:
    file = path(name, mix)
    for weights, most in FAR.items():
        found = logits(quickest_stack.device, file, weights, target=quickest_stack.target)
        assert 0 < distance(found, exact(file)) < most, weights
    assert found.tobytes() == on_the_interpreter(file, "q4").tobytes()


@pytest.mark.parametrize("name", ["llama", "lfm2", "gemma3"])
def test_columns_that_are_no_multiple_of_a_block(
    name: str, quickest_stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 80 and 100 numbers, heads of 20: padded with zeros, or as they are in float32.
    Weights of about 1 make attention jump, so that rounding shows more than in models."""
    for size, value in {"WIDTH": 80, "FF": 100, "HEAD": 20}.items():
        monkeypatch.setattr(ggufs, size, value)
    file = ggufs.model(tmp_path / "model.gguf", name, "F32")
    true = reference64.Model(file).logits([i % 40 for i in IDS])
    for weights, most in FAR.items():
        found = logits(
            quickest_stack.device,
            file,
            weights,
            ids=[i % 40 for i in IDS],
            target=quickest_stack.target,
        )
        assert 0 < distance(found, true) < 5 * most, weights
    with open_device("interpreter") as device:
        assert found.tobytes() == logits(device, file, "q4", ids=[i % 40 for i in IDS]).tobytes()


@pytest.mark.parametrize("head", [32, 96] if FULL else [96])
def test_heads_of_an_int8_cache(
    head: int, quickest_stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ggufs, "HEAD", head)
    monkeypatch.setattr(ggufs, "WIDTH", 4 * head)
    file = ggufs.model(tmp_path / "model.gguf", "llama", "Q8_0")
    ids = [i % 40 for i in IDS]
    found = logits(quickest_stack.device, file, "q8", "int8", ids=ids, target=quickest_stack.target)
    assert 0 < distance(found, reference64.Model(file).logits(ids)) < 0.4
    with open_device("interpreter") as device:
        assert found.tobytes() == logits(device, file, "q8", "int8", ids=ids).tobytes()
