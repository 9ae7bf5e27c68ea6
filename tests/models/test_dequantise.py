"""Every tensor type to float32, bit for bit as the gguf package has it."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from ferro.models import dequantise
from ferro.models.gguf_types import TYPES as KNOWN

KINDS = {kind.name: kind for kind in KNOWN.values()}


def random_blocks(kind: str, rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """Any bytes at all: infinities and NaN among the scales too."""
    size = KINDS[kind]
    shape = (rows, cols // size.values, size.nbytes)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def test_all_types_are_there() -> None:
    wanted = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K"
    assert sorted(dequantise.TYPES) == sorted(wanted.split())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", dequantise.TYPES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 256), (5, 768), (130, 512), (0, 256)])
def test_bits_are_those_of_the_package(kind: str, rows: int, cols: int) -> None:
    blocks = random_blocks(kind, rows, cols)
    found = dequantise.dequantise(blocks, kind)
    assert found.shape == (rows, cols) and found.dtype == np.float32
    if rows:
        flat = blocks.reshape(rows, -1)
        wanted = gguf.quants.dequantize(flat, gguf.GGMLQuantizationType[kind])
        np.testing.assert_array_equal(found, wanted)  # NaN equals NaN
        bits, wanted_bits = found.view(np.uint32), wanted.view(np.uint32)
        assert (bits == wanted_bits)[~np.isnan(wanted)].all()


@pytest.mark.parametrize("kind", dequantise.TYPES)
def test_planes_hold_one_value_of_every_block(kind: str) -> None:
    blocks = random_blocks(kind, 3, 512)
    size = KINDS[kind]
    with np.errstate(all="ignore"):
        planes = dequantise.planes(blocks.reshape(-1, size.nbytes), kind)
        rows = dequantise.dequantise(blocks, kind)
    assert planes.shape == (size.values, rows.size // size.values)
    np.testing.assert_array_equal(planes.T.reshape(3, 512), rows)


def test_q4_k_by_hand() -> None:
    """One block: d = 0.5, dmin = 2, scales 1..8, minima 0 but for the last group (33)."""
    scales = [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8 | (33 & 15) << 4]
    scales[7] |= 33 >> 4 << 6
    head = np.array([0.5, 2.0], np.float16).view(np.uint8).tolist()
    qs = [0x21] * 128
    block = np.array([*head, *scales, *qs], np.uint8)[None, None]
    found = dequantise.dequantise(block, "Q4_K").reshape(8, 32)
    low = [0.5 * scale for scale in (1, 3, 5, 7)]
    high = [0.5 * scale * 2 for scale in (2, 4, 6)] + [0.5 * 8 * 2 - 2 * 33]
    for group in range(4):
        assert set(found[2 * group].tolist()) == {low[group]}
        assert set(found[2 * group + 1].tolist()) == {high[group]}
