"""Host forms of block-quantised matrices: ``Q8`` and ``Q4`` for weights, ``A8`` for activations.

A row is cut into blocks of 32; a block is 32 int8 values and one scale, in ``Q4`` also a minimum.
A row whose length is no multiple of 32 is padded with zeros; ``cols`` keeps the true length. How a
target lays the same numbers out in device memory is its own business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ferro.dsl.exact import fma32

BLOCK = 32
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))

Int8s = NDArray[np.int8]
Floats = NDArray[np.floating[Any]]


class _Matrix:
    """What matrices of blocks have in common: rows of int8 values and their true length."""

    q: Int8s
    cols: int

    @property
    def rows(self) -> int:
        return len(self.q)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.rows, self.cols)


@dataclass(frozen=True, eq=False)
class Q8(_Matrix):
    """Weights of ``rows`` x ``cols``: ``q`` int8 [rows, K], ``scale`` float16 [rows, K/32], with K
    the next multiple of 32 from ``cols`` (default: all of ``q``'s columns).

    Raises TypeError or ValueError if dtypes or shapes do not fit.
    """

    q: Int8s
    scale: NDArray[np.float16]
    cols: int = -1
    format: ClassVar[str] = "q8"

    def __post_init__(self) -> None:
        _check_matrix("Q8", self.q, self.scale, np.dtype(np.float16))
        object.__setattr__(self, "cols", _checked_cols("Q8", self.q, self.cols))

    @property
    def nbytes(self) -> int:
        """Bytes of values and scales: 34 for each block."""
        return self.q.nbytes + self.scale.nbytes

    @classmethod
    def quantize(cls, x: Floats) -> Q8:
        """The matrix nearest to ``x`` [rows, cols] (converted to float32) by llama.cpp's Q8_0 rule.

        d = amax / 127 in float32, stored as float16; q = x * (1 / d) rounded, ties away from zero,
        with d before its rounding to float16. A block of zeros has d = 0 and q = 0. Every step is
        one correctly rounded operation, so the bits do not depend on the machine. Raises
        ValueError for values that are not finite or too large for a float16 scale.
        """
        blocks = _blocks(np.asarray(x, np.float32))
        rows, per_row, _ = blocks.shape
        q, scale = quantize_planes(np.ascontiguousarray(blocks.reshape(-1, BLOCK).T))
        values = np.ascontiguousarray(q.T).reshape(rows, per_row * BLOCK)
        return cls(values, scale.reshape(rows, per_row), np.shape(x)[1])

    def copied(self) -> Q8:
        """The same numbers in fresh memory."""
        return Q8(self.q.copy(), self.scale.copy(), self.cols)

    def dequantize(self) -> NDArray[np.float32]:
        """float32 [rows, cols]: float(q) * float(scale), rounded once."""
        return _dequantize(self.q, self.scale, self.cols)


@dataclass(frozen=True, eq=False)
class Q4(_Matrix):
    """Weights of ``rows`` x ``cols`` in 4 bits: ``q`` int8 [rows, K] of 0..15, ``scale`` and
    ``minimum`` float16 [rows, K/32]; an element is q * scale + minimum. K as in ``Q8``.

    Raises TypeError or ValueError if dtypes, shapes or values do not fit.
    """

    q: Int8s
    scale: NDArray[np.float16]
    minimum: NDArray[np.float16]
    cols: int = -1
    format: ClassVar[str] = "q4"

    def __post_init__(self) -> None:
        _check_matrix("Q4", self.q, self.scale, np.dtype(np.float16))
        _check_matrix("Q4", self.q, self.minimum, np.dtype(np.float16))
        if self.q.size and not 0 <= self.q.min() <= self.q.max() <= 15:
            raise ValueError("Q4: values must be from 0 to 15")
        object.__setattr__(self, "cols", _checked_cols("Q4", self.q, self.cols))

    @property
    def nbytes(self) -> int:
        """Bytes of values, scales and minima: 20 for each block."""
        return self.q.nbytes // 2 + self.scale.nbytes + self.minimum.nbytes

    @classmethod
    def quantize(cls, x: Floats) -> Q4:
        """The matrix nearest to ``x`` [rows, cols] (converted to float32) by llama.cpp's Q4_1 rule.

        d = (max - min) / 15, stored as float16 like min; q = (x - min) * (1 / d), rounded with ties
        up, with d before its rounding. Every step is one correctly rounded operation. Raises
        ValueError for values that are not finite or too large for float16.
        """
        blocks = _blocks(np.asarray(x, np.float32))
        rows, per_row, _ = blocks.shape
        low, high = blocks.min(axis=-1, initial=np.inf), blocks.max(axis=-1, initial=-np.inf)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("Q4.quantize: the matrix has values that are not finite")
        with np.errstate(all="ignore"):
            step = (high - low) / np.float32(15)
            inverse = _finite(np.where(step > 0, np.float32(1) / step, np.float32(0)))
            scale, minimum = step.astype(np.float16), low.astype(np.float16)
        if np.isinf(scale).any() or np.isinf(minimum).any():
            raise ValueError("Q4.quantize: a block's values do not fit in float16")
        steps = (blocks - low[..., None]) * inverse[..., None] + np.float32(0.5)
        q = np.minimum(np.floor(steps), np.float32(15)).astype(np.int8)
        values = q.reshape(rows, per_row * BLOCK)
        values[:, np.shape(x)[1] :] = 0
        return cls(values, scale, minimum, np.shape(x)[1])

    def copied(self) -> Q4:
        """The same numbers in fresh memory."""
        return Q4(self.q.copy(), self.scale.copy(), self.minimum.copy(), self.cols)

    def dequantize(self) -> NDArray[np.float32]:
        """float32 [rows, cols]: fma(float(q), float(scale), float(minimum))."""
        per_row = self.q.shape[1] // BLOCK
        blocks = self.q.reshape(self.rows, per_row, BLOCK).astype(np.float32)
        scale, low = (x.astype(np.float32)[..., None] for x in (self.scale, self.minimum))
        return _rows(fma32(blocks, scale, low))[:, : self.cols]


@dataclass(frozen=True, eq=False)
class A8(_Matrix):
    """Activations of ``rows`` x ``cols``: ``q`` int8 [rows, K], ``scale`` float32 [rows, K/32] and
    ``sums`` int32 [rows, K/32], the sum of each block's values, derived from ``q``.

    Raises TypeError or ValueError if dtypes or shapes do not fit.
    """

    q: Int8s
    scale: NDArray[np.float32]
    cols: int = -1
    sums: NDArray[np.int32] = field(init=False)
    format: ClassVar[str] = "a8"

    def __post_init__(self) -> None:
        _check_matrix("A8", self.q, self.scale, np.dtype(np.float32))
        object.__setattr__(self, "cols", _checked_cols("A8", self.q, self.cols))
        object.__setattr__(self, "sums", block_sums(self.q))

    @property
    def nbytes(self) -> int:
        return self.q.nbytes + self.scale.nbytes + self.sums.nbytes

    def first(self, rows: int) -> A8:
        """Its first rows, sharing memory."""
        part = A8(self.q[:rows], self.scale[:rows], self.cols)
        object.__setattr__(part, "sums", self.sums[:rows])
        return part

    @classmethod
    def empty(cls, rows: int, cols: int) -> A8:
        """A matrix of zeros, to be written by a kernel."""
        padded = padded_cols(cols)
        q = np.zeros((rows, padded), np.int8)
        return cls(q, np.zeros((rows, padded // BLOCK), np.float32), cols)

    @classmethod
    def quantize(cls, x: Floats) -> A8:
        """``x`` [rows, cols] by the language's `tl.quantize_i8`.

        scale = amax/127, q = rint(x * (127/amax)); a block of zeros, or one whose scale would be
        subnormal, gives 0; a block with NaN or an infinity has scale NaN and q = 0.
        """
        blocks = _blocks(np.asarray(x, np.float32))
        amax = np.abs(blocks).max(axis=-1, initial=0)
        good = (amax >= np.float32(127 * 2.0**-126)) & (amax < np.inf)
        safe = np.where(good, amax, np.float32(1))
        bad = np.where(np.isfinite(amax), np.float32(0), np.float32(np.nan))
        scale = np.where(good, safe / np.float32(127), bad)
        with np.errstate(all="ignore"):
            factor = np.float32(127) / safe
            rounded = np.where(good[..., None], np.rint(blocks * factor[..., None]), 0)
        q = rounded.astype(np.int8)
        return cls(_rows(q), scale, np.shape(x)[1])

    def copied(self) -> A8:
        """The same numbers in fresh memory."""
        return A8(self.q.copy(), self.scale.copy(), self.cols)

    def dequantize(self) -> NDArray[np.float32]:
        """float32 [rows, cols]: float(q) * scale, rounded once."""
        return _dequantize(self.q, self.scale, self.cols)


def quantize_planes(x: NDArray[np.float32]) -> tuple[Int8s, NDArray[np.float16]]:
    """The rule of ``Q8.quantize`` for blocks that stand in columns: int8 [32, n] and float16 [n]
    from float32 [32, n]. numpy is quick along the long axis only. Raises ValueError alike.
    """
    work = np.abs(x)
    exact = work.max(axis=0, initial=0) / np.float32(127)
    if not np.isfinite(exact).all():
        raise ValueError("Q8.quantize: the matrix has values that are not finite")
    with np.errstate(all="ignore"):
        inverse = np.where(exact > 0, np.float32(1) / exact, np.float32(0))
        scale = exact.astype(np.float16)
    if np.isinf(scale).any():
        raise ValueError("Q8.quantize: a block's largest value / 127 does not fit in float16")
    np.multiply(x, _finite(inverse), out=work)
    # Ties away from zero: adding the number below 1/2 carries exactly the halves and what is above
    # them to the next whole number, which the cast then cuts to.
    work += np.copysign(BELOW_HALF, work)
    return work.astype(np.int8), scale


def padded_cols(cols: int) -> int:
    """The next multiple of 32."""
    return -(-cols // BLOCK) * BLOCK


def block_sums(q: Int8s) -> NDArray[np.int32]:
    """int32 [rows, K/32]: the sum of each block of 32."""
    blocks = q.reshape(len(q), q.shape[1] // BLOCK, BLOCK)
    sums: NDArray[np.int32] = np.add.reduce(blocks, axis=-1, dtype=np.int32)
    return sums


def _blocks(x: NDArray[np.float32]) -> NDArray[np.float32]:
    if x.ndim != 2:
        raise ValueError(f"a matrix [rows, cols] is needed, got shape {x.shape}")
    rows, cols = x.shape
    padded = np.zeros((rows, padded_cols(cols)), np.float32)
    padded[:, :cols] = x
    return padded.reshape(rows, padded.shape[1] // BLOCK, BLOCK)


def _rows(blocks: NDArray[Any]) -> NDArray[Any]:
    return blocks.reshape(blocks.shape[0], blocks.shape[1] * BLOCK)


def _finite(inverse: NDArray[np.float32]) -> NDArray[np.float32]:
    # 1 / d overflows for d below 2^-128: such a block is zero in float16 anyway
    return np.where(np.isinf(inverse), np.float32(0), inverse)


def _dequantize(q: Int8s, scale: Floats, cols: int) -> NDArray[np.float32]:
    blocks = q.reshape(len(q), q.shape[1] // BLOCK, BLOCK).astype(np.float32)
    return _rows(blocks * scale.astype(np.float32)[..., None])[:, :cols]


def _check_matrix(kind: str, q: Int8s, scale: Floats, scale_dtype: np.dtype[Any]) -> None:
    if q.dtype != np.int8 or scale.dtype != scale_dtype:
        raise TypeError(
            f"{kind}: needs int8 values and {scale_dtype} scales, got {q.dtype} and {scale.dtype}"
        )
    if q.ndim != 2 or q.shape[1] % BLOCK:
        raise ValueError(f"{kind}: values must be [rows, a multiple of 32], got {q.shape}")
    if scale.shape != (q.shape[0], q.shape[1] // BLOCK):
        raise ValueError(f"{kind}: scales must be [rows, K/32], got {scale.shape} for {q.shape}")


def _checked_cols(kind: str, q: Int8s, cols: int) -> int:
    if cols == -1:
        return int(q.shape[1])
    if padded_cols(cols) != q.shape[1]:
        raise ValueError(f"{kind}: {cols} columns do not pad to {q.shape[1]}")
    if q[:, cols:].any():
        raise ValueError(f"{kind}: the columns after {cols} must be zero")
    return cols
