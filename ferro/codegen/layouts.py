"""Memory layouts of block-quantised matrices, as the targets read them.

q8 weights [N, K]: ``[N/L][K/4][L][4]`` bytes, then f16 scales ``[N/L][K/32][L]``; rows are padded
with zeros to a multiple of 64. Dot lowerings that multiply unsigned by signed bytes store the
weights biased by 128.
q4 weights [N, K]: ``[N/L][K/8][L][4]`` bytes, of which byte b holds value 8 j + b in its lower and
8 j + 4 + b in its upper half; then f16 scales and f16 minima ``[N/L][K/32][L]``; rows as in q8. Its
values 0..15 are signed and unsigned bytes alike.
a8 activations [M, K]: int8 rows, then f32 scales and int32 block sums ``[M][K/32]``; rows are
padded with zero blocks to a multiple of 16.
K is padded with zeros to a multiple of 32 in all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Q8_ROWS = 64
A8_ROWS = 16
BLOCK = 32
WEIGHTS = ("q8", "q4")
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


def q4_bytes(rows: int, cols: int) -> int:
    """Size of a packed q4 matrix: 20 bytes per 32 weights, padding included."""
    return round_up(rows, Q8_ROWS) * (round_up(cols, BLOCK) // BLOCK) * 20


def pack_q8(
    q: npt.NDArray[np.int8], scale: npt.NDArray[np.float16], lanes: int, biased: bool
) -> Bytes:
    """Pack ``q`` [N, Kp] and ``scale`` [N, Kp/32] (Kp a multiple of 32) for ``lanes`` rows."""
    n, k = q.shape
    rows = round_up(n, Q8_ROWS)
    out = np.empty(q8_bytes(n, k), np.uint8)
    words = out[: rows * k].view(np.uint32).reshape(rows // lanes, k // 4, lanes)
    _interleave(words, np.ascontiguousarray(q).view(np.uint32), lanes)
    if biased:
        words ^= np.uint32(0x80808080)
    _put_halves(out[rows * k :], scale, rows, lanes)
    return out


def pack_q4(
    q: npt.NDArray[np.int8],
    scale: npt.NDArray[np.float16],
    minimum: npt.NDArray[np.float16],
    lanes: int,
) -> Bytes:
    """Pack ``q`` [N, Kp] of 0..15, ``scale`` and ``minimum`` [N, Kp/32] for ``lanes`` rows."""
    n, k = q.shape
    rows = round_up(n, Q8_ROWS)
    out = np.empty(q4_bytes(n, k), np.uint8)
    pairs = np.ascontiguousarray(q).view(np.uint32).reshape(n, k // 8, 2)
    words = out[: rows * k // 2].view(np.uint32).reshape(rows // lanes, k // 8, lanes)
    _interleave(words, pairs[:, :, 0] | pairs[:, :, 1] << np.uint32(4), lanes)
    scales, minima = np.split(out[rows * k // 2 :], 2)
    _put_halves(scales, scale, rows, lanes)
    _put_halves(minima, minimum, rows, lanes)
    return out


def _interleave(words: npt.NDArray[np.uint32], source: npt.NDArray[np.uint32], lanes: int) -> None:
    """Words [N/L][per row][L] from ``source`` [n, per row]; zeros in rows past n."""
    n, per_row = source.shape
    full = n // lanes
    blocks = source[: full * lanes].reshape(full, lanes, per_row)
    np.copyto(words[:full], blocks.transpose(0, 2, 1))
    words[full:] = 0
    for row in range(full * lanes, n):
        words[full, :, row % lanes] = source[row]


def _put_halves(out: Bytes, values: npt.NDArray[np.float16], rows: int, lanes: int) -> None:
    """float16 [rows/L][K/32][L] from ``values`` [n, K/32]; zeros in rows past n."""
    n, blocks = values.shape
    padded = np.zeros((rows, blocks), np.float16)
    padded[:n] = values
    halves = out.view(np.float16).reshape(rows // lanes, blocks, lanes)
    halves[:] = padded.reshape(rows // lanes, lanes, blocks).transpose(0, 2, 1)


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
