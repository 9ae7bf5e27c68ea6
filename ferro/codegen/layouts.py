"""Memory layouts of block-quantised matrices, as the targets read them.

q8 weights [N, K]: ``[N/L][K/4][L][4]`` bytes, then f16 scales ``[N/L][K/32][L]``; rows are padded
with zeros to a multiple of 64. Dot lowerings that multiply unsigned by signed bytes store the
weights biased by 128.
a8 activations [M, K]: int8 rows, then f32 scales and int32 block sums ``[M][K/32]``; rows are
padded with zero blocks to a multiple of 16.
K is padded with zeros to a multiple of 32 in both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Q8_ROWS = 64
A8_ROWS = 16
BLOCK = 32
BIASED_DOTS = frozenset({"vnni512", "vnni256"})

Bytes = npt.NDArray[np.uint8]


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def is_biased(dot: str) -> bool:
    """True if the lowering ``dot`` reads weights as unsigned bytes, ``w + 128``."""
    return dot in BIASED_DOTS


def q8_bytes(rows: int, cols: int) -> int:
    """Size of a packed q8 matrix: 34 bytes per 32 weights, padding included."""
    return round_up(rows, Q8_ROWS) * (round_up(cols, BLOCK) // BLOCK) * 34


def pack_q8(
    q: npt.NDArray[np.int8], scale: npt.NDArray[np.float16], lanes: int, biased: bool
) -> Bytes:
    """Pack ``q`` [N, Kp] and ``scale`` [N, Kp/32] (Kp a multiple of 32) for ``lanes`` rows."""
    n, k = q.shape
    rows = round_up(n, Q8_ROWS)
    out = np.empty(q8_bytes(n, k), np.uint8)
    words = out[: rows * k].view(np.uint32).reshape(rows // lanes, k // 4, lanes)
    full = n // lanes
    bias = np.uint32(0x80808080 if biased else 0)
    source = np.ascontiguousarray(q).view(np.uint32)
    np.copyto(words[:full], source[: full * lanes].reshape(full, lanes, k // 4).transpose(0, 2, 1))
    words[full:] = 0
    for row in range(full * lanes, n):
        words[full, :, row % lanes] = source[row]
    if biased:
        words ^= bias
    scales = out[rows * k :].view(np.float16).reshape(rows // lanes, k // BLOCK, lanes)
    padded = np.zeros((rows, k // BLOCK), np.float16)
    padded[:n] = scale
    scales[:] = padded.reshape(rows // lanes, lanes, k // BLOCK).transpose(0, 2, 1)
    return out


def a8_bytes(rows: int, cols: int) -> int:
    """Size of an a8 matrix: 40 bytes per 32 values, padding included."""
    return round_up(rows, A8_ROWS) * (round_up(cols, BLOCK) // BLOCK) * 40


def _a8_sections(
    data: Bytes, rows: int, cols: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    m, k = round_up(rows, A8_ROWS), round_up(cols, BLOCK)
    blocks = k // BLOCK
    q = data[: m * k].view(np.int8).reshape(m, k)
    scale = data[m * k : m * (k + 4 * blocks)].view(np.float32).reshape(m, blocks)
    sums = data[m * (k + 4 * blocks) : m * (k + 8 * blocks)].view(np.int32).reshape(m, blocks)
    return q, scale, sums


def pack_a8(q: npt.NDArray[np.int8], scale: npt.NDArray[np.float32]) -> Bytes:
    """Pack ``q`` [M, Kp] and ``scale`` [M, Kp/32]; the block sums are derived."""
    rows, k = q.shape
    data = np.zeros(a8_bytes(rows, k), np.uint8)
    to_q, to_scale, to_sums = _a8_sections(data, rows, k)
    to_q[:rows] = q
    to_scale[:rows] = scale
    to_sums[:rows] = q.reshape(rows, q.shape[1] // BLOCK, BLOCK).sum(axis=2, dtype=np.int32)
    return data


def unpack_a8(
    data: Bytes, rows: int, cols: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """The int8 rows [M, Kp] and scales [M, Kp/32] of a packed a8 matrix, as views."""
    q, scale, _ = _a8_sections(data, rows, cols)
    return q[:rows], scale[:rows]
