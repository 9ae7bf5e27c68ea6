"""Tensor types to float32, exactly: the one float32 number that each value stands for.

A type is described by a function from blocks (uint8 [n, bytes of a block]) to *planes* (float32
[values of a block, n]): plane i holds value i of every block. Products and sums are single float32
operations in the order of the format's definition, so the bits are those of every other reader.
Planes, because numpy is quick along long axes only (four times as quick as along blocks of 32).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ferro.models.levels import Levels

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def planes(blocks: Bytes, kind: str) -> Floats:
    """float32 [values of a block, n] from uint8 [n, bytes of a block] of the type ``kind``.

    Raises KeyError for a type that is not in ``TYPES``.
    """
    return TYPES[kind](blocks)


def dequantise(blocks: Bytes, kind: str) -> Floats:
    """float32 [rows, columns] from uint8 [rows, blocks a row, bytes a block]."""
    rows, per_row, size = blocks.shape
    flat = planes(blocks.reshape(rows * per_row, size), kind)
    return np.ascontiguousarray(flat.T).reshape(rows, per_row * len(flat))


def levels(blocks: Bytes, kind: str) -> list[Levels]:
    """The same numbers as levels, each group of 32 values of a block by itself; empty for types
    whose groups have no grid of few levels."""
    return LEVELS[kind](blocks) if kind in LEVELS else []


def _f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float32).T


def _f16(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32).T


def _bf16(blocks: Bytes) -> Floats:
    upper = np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32)
    return (upper << np.uint32(16)).view(np.float32).T


def _q8_0(blocks: Bytes) -> Floats:
    return _signed(blocks[:, 2:]).astype(np.float32) * _half(blocks, 0)


def _q4_0(blocks: Bytes) -> Floats:
    return (_nibbles(blocks[:, 2:]) - np.float32(8)) * _half(blocks, 0)


def _q4_1(blocks: Bytes) -> Floats:
    return _nibbles(blocks[:, 4:]) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    return (_five_bits(blocks[:, 6:], blocks[:, 2:6]) - np.float32(16)) * _half(blocks, 0)


def _q5_1(blocks: Bytes) -> Floats:
    return _five_bits(blocks[:, 8:], blocks[:, 4:8]) * _half(blocks, 0) + _half(blocks, 2)


def _q4_k(blocks: Bytes) -> Floats:
    return _by_groups(_q4_k_levels(blocks), blocks)


def _q4_k_levels(blocks: Bytes) -> Floats:
    q = _low_then_high(_turned(blocks[:, 16:]).reshape(4, 32, -1))
    return q.astype(np.float32)


def _q5_k(blocks: Bytes) -> Floats:
    return _by_groups(_q5_k_levels(blocks), blocks)


def _q5_k_levels(blocks: Bytes) -> Floats:
    q = _low_then_high(_turned(blocks[:, 48:]).reshape(4, 32, -1))
    high = _turned(blocks[:, 16:48])
    for group in range(8):
        q[group] |= (high >> np.uint8(group) & np.uint8(1)) << np.uint8(4)
    return q.astype(np.float32)


def _q6_k(blocks: Bytes) -> Floats:
    low = _turned(blocks[:, :128]).reshape(2, 2, 32, -1)
    high = _turned(blocks[:, 128:192]).reshape(2, 1, 32, -1)
    q = np.empty((2, 4, 32, len(blocks)), np.uint8)
    np.bitwise_and(low, 15, out=q[:, :2])
    np.right_shift(low, 4, out=q[:, 2:])
    for part in range(4):
        q[:, part] |= (high[:, 0] >> np.uint8(2 * part) & np.uint8(3)) << np.uint8(4)
    scale = _signed(blocks[:, 192:208]).astype(np.float32) * _half(blocks, 208)
    values = q.astype(np.float32).reshape(16, 16, -1) - np.float32(32)
    return (values * scale[:, None]).reshape(256, -1)


TYPES: dict[str, Callable[[Bytes], Floats]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


def _turned(part: Bytes) -> Bytes:
    """[bytes, n] from [n, bytes]."""
    return np.ascontiguousarray(part.T)


def _signed(part: Bytes) -> npt.NDArray[np.int8]:
    return _turned(part).view(np.int8)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte ``at`` of each block, as float32 [n]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)[:, 0].astype(np.float32)


def _nibbles(part: Bytes) -> Floats:
    """[32, n] from 16 bytes a block: low halves first, then high halves."""
    return _low_then_high(_turned(part)[None]).reshape(32, -1).astype(np.float32)


def _low_then_high(packed: Bytes) -> Bytes:
    """[2 * groups, size, n] from [groups, size, n]: a group's low halves, then its high halves."""
    groups, size, n = packed.shape
    q = np.empty((groups, 2, size, n), np.uint8)
    np.bitwise_and(packed, 15, out=q[:, 0])
    np.right_shift(packed, 4, out=q[:, 1])
    return q.reshape(2 * groups, size, n)


def _five_bits(low: Bytes, high: Bytes) -> Floats:
    """[32, n]: 16 bytes of halves as in ``_nibbles``, and 32 bits that are the fifth ones."""
    q = _low_then_high(_turned(low)[None]).reshape(4, 8, -1)
    bits = _turned(high)[:, None] >> np.arange(8, dtype=np.uint8)[:, None]
    q |= (bits & np.uint8(1)) << np.uint8(4)
    return q.reshape(32, -1).astype(np.float32)


def _by_groups(q: Floats, blocks: Bytes) -> Floats:
    """Values of the K types: q [8, 32, n] times a group's scale, minus its minimum."""
    d, m = _scales(blocks)
    q *= d[:, None]
    q -= m[:, None]
    return q.reshape(256, -1)


def _scales(blocks: Bytes) -> tuple[Floats, Floats]:
    """Scales and minima of the groups of the K types, [8, n] each."""
    s = _turned(blocks[:, 4:16])
    scale, least = np.empty((2, 8, len(blocks)), np.uint8)
    scale[:4], least[:4] = s[:4] & 63, s[4:8] & 63
    scale[4:] = s[8:] & 15 | s[:4] >> 6 << 4
    least[4:] = s[8:] >> 4 | s[4:8] >> 6 << 4
    d = scale.astype(np.float32) * _half(blocks, 0)
    return d, least.astype(np.float32) * _half(blocks, 2)


def _centred(q: Floats, blocks: Bytes, top: int) -> list[Levels]:
    d = _half(blocks, 0)
    return [Levels(q, d, d * np.float32(-(top + 1) / 2), top)]


def _shifted(q: Floats, blocks: Bytes, top: int) -> list[Levels]:
    return [Levels(q, _half(blocks, 0), _half(blocks, 2), top)]


def _grouped(q: Floats, blocks: Bytes, top: int) -> list[Levels]:
    groups = zip(q, *_scales(blocks), strict=True)
    return [Levels(part, d, -m, top) for part, d, m in groups]


LEVELS: dict[str, Callable[[Bytes], list[Levels]]] = {
    "Q4_0": lambda b: _centred(_nibbles(b[:, 2:]), b, 15),
    "Q4_1": lambda b: _shifted(_nibbles(b[:, 4:]), b, 15),
    "Q5_0": lambda b: _centred(_five_bits(b[:, 6:], b[:, 2:6]), b, 31),
    "Q5_1": lambda b: _shifted(_five_bits(b[:, 8:], b[:, 4:8]), b, 31),
    "Q4_K": lambda b: _grouped(_q4_k_levels(b), b, 15),
    "Q5_K": lambda b: _grouped(_q5_k_levels(b), b, 31),
}
