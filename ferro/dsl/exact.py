"""The arithmetic of the language in numpy, bit for bit what a correctly rounding device computes.

Every function takes and gives numpy arrays (or scalars) that broadcast against each other. None
raises on special values: floats follow IEEE 754 with subnormals kept, integers wrap. numpy's
transcendental functions, its float sums and float BLAS are not used, because their bits differ
between processors; ``dot_i8`` may use float32 BLAS, since all its sums are exact integers.
docs/numerics.md states the rules and why these formulas keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PARTIALS = 32
CHUNK = 4096
_PIECE = 32768  # elements worked on at once, so that temporaries stay in the cache
_DOT_K = 1024  # 1024 * 128 * 128 = 2^24: float32 sums of that many int8 products are exact


def pieces(shape: tuple[int, ...], limit: int = _PIECE) -> Iterator[tuple[slice, ...]]:
    """Index tuples that cut ``shape`` into boxes of about ``limit`` elements, in order."""
    size = 1
    for extent in shape:
        size *= extent
    if size <= limit or not shape:
        if size:
            yield (slice(None),) * len(shape)
        return
    axis = next(i for i, extent in enumerate(shape) if extent > 1)
    step = max(1, limit * shape[axis] // size)
    for start in range(0, shape[axis], step):
        here = (slice(None),) * axis + (slice(start, start + step),)
        if step > 1:
            yield here + (slice(None),) * (len(shape) - axis - 1)
        else:
            yield from (here + rest for rest in pieces(shape[axis + 1 :], limit))


def in_pieces(function: Callable[..., Array], *args: Array) -> Array:
    """An elementwise function of ``args`` evaluated piece by piece (same result, less memory)."""
    joined = np.broadcast(*args)
    if joined.size <= _PIECE:
        return function(*args)
    shape = joined.shape
    wide = [np.broadcast_to(a, shape) for a in args]
    out: Array | None = None
    for piece in pieces(shape):
        part = function(*(a[piece] for a in wide))
        if out is None:
            out = np.empty(shape, part.dtype)
        out[piece] = part
    assert out is not None
    return out


# ------------------------------------------------------------------------------ fma and halves


_FEW = 2048  # elements that are quicker done all than picked out


def fma32(a: Array, b: Array, c: Array) -> Array:
    """float32 ``a * b + c`` with one rounding, over the whole range of float32."""
    a, b, c = (np.asarray(v, np.float32) for v in (a, b, c))
    with np.errstate(all="ignore"):
        return fused(a, b, c)


def fused(a: Array, b: Array, c: Array) -> Array:
    """``fma32`` of float32 arrays, for callers that ignore floating-point warnings."""
    return in_pieces(_fma32, a, b, c)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)  # exact: 48 bits
    total = np.asarray(np.add(product, c, dtype=np.float64))
    shape = total.shape
    result = total.astype(np.float32)
    # Rounding twice differs from rounding once only where the float64 sum is a midpoint of
    # float32 numbers, and a midpoint has at most 25 significant bits.
    low = total.reshape(-1).view(np.uint32)[::2] << np.uint32(4)
    if not low.all():
        suspect = (low == 0).reshape(shape) & (result != total)
        if suspect.any():
            if total.size <= _FEW:
                return np.asarray(_fma32_to_odd(a, b, c))
            parts = (np.broadcast_to(v, shape)[suspect] for v in (a, b, c))
            result[suspect] = _fma32_to_odd(*parts)
    return result


def _fma32_to_odd(a: Array, b: Array, c: Array) -> Array:
    """The same through a float64 sum rounded to odd, after which a second rounding is harmless."""
    product = a.astype(np.float64) * b
    addend = c.astype(np.float64)
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    inexact = (error > 0) | (error < 0)  # false where the error is NaN
    odd = np.where(inexact & (bits & 1 == 0), bits + step, bits)
    return odd.view(np.float64).astype(np.float32)


def to_half(x: Array) -> Array:
    """float32 to float16, ties to even; too large gives inf, subnormals are kept."""
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float32).astype(np.float16)


# ------------------------------------------------------------------------------------ casts

_LIMITS = {
    np.dtype(t): (float(np.iinfo(t).min), float(np.iinfo(t).max))
    for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
}


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` as ``dtype``: the conversions of the language.

    float to int rounds ties to even, saturates and gives 0 for NaN; int to int keeps the low bits;
    int to float and float32 to float16 round ties to even; anything to bool is ``x != 0``.
    float16 goes through float32, ints go to float16 through float32.
    """
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return np.not_equal(x, 0)
    if x.dtype.kind == "f" and dtype.kind in "iu":
        return _to_int(x, dtype)
    if dtype == np.float16:
        return to_half(x.astype(np.float32))
    return x.astype(dtype)


def _to_int(x: Array, dtype: np.dtype[Any]) -> Array:
    low, high = _LIMITS[dtype]
    with np.errstate(all="ignore"):
        wide = np.rint(x.astype(np.float64))
        wide = np.fmin(np.fmax(wide, low), high)  # NaN becomes the lower limit here
        return np.where(np.isnan(x), 0.0, wide).astype(np.int64).astype(dtype)


# --------------------------------------------------------------------------------- integers


def divide(a: Array, b: Array) -> Array:
    """Integer quotient towards zero; ``x / 0`` is 0, ``INT_MIN / -1`` is INT_MIN.

    float64 is exact here: a quotient that is no integer differs from the next one by more than
    2^-31 of itself.
    """
    with np.errstate(all="ignore"):
        quotient = np.trunc(a.astype(np.float64) / b)
        return np.where(b == 0, 0.0, quotient).astype(np.int64).astype(a.dtype)


def modulo(a: Array, b: Array) -> Array:
    """``a - divide(a, b) * b``, with the sign of ``a``; ``x % 0`` is 0."""
    rest: Array = a - divide(a, b) * b
    return np.where(b == 0, a.dtype.type(0), rest)


def shift_left(a: Array, count: Array) -> Array:
    """``a << (count mod 32)``."""
    result: Array = np.left_shift(a, np.bitwise_and(count, 31).astype(a.dtype))
    return result


def shift_right(a: Array, count: Array) -> Array:
    """``a >> (count mod 32)``, arithmetic for signed types."""
    result: Array = np.right_shift(a, np.bitwise_and(count, 31).astype(a.dtype))
    return result


# ---------------------------------------------------------------------------- min, max, argmax


def maximum(a: Array, b: Array) -> Array:
    """Elementwise maximum; NaN wins, +0 is above -0."""
    return _extreme(np.maximum, np.bitwise_and, a, b)


def minimum(a: Array, b: Array) -> Array:
    """Elementwise minimum; NaN wins, -0 is below +0."""
    return _extreme(np.minimum, np.bitwise_or, a, b)


def _extreme(pick: np.ufunc, signs: np.ufunc, a: Array, b: Array) -> Array:
    result: Array = np.asarray(pick(a, b))
    if result.dtype.kind == "f":
        # equal floats have equal bits, but for the two zeros
        both = np.asarray(signs(a.view(np.int32), b.view(np.int32))).view(np.float32)
        np.copyto(result, both, where=np.equal(a, b))
    return result


def reduce_max(x: Array, axis: int) -> Array:
    """Maximum along ``axis``: NaN wins, +0 above -0."""
    return _reduce(np.maximum, 1, x, axis)


def reduce_min(x: Array, axis: int) -> Array:
    """Minimum along ``axis``: NaN wins, -0 below +0."""
    return _reduce(np.minimum, -1, x, axis)


def reduce_argmax(x: Array, axis: int) -> Array:
    """i32 index of the maximum along ``axis``, the lowest one; NaN wins, +0 is above -0."""
    keys = _ordered(x, 1) if x.dtype.kind == "f" else x
    return np.asarray(np.argmax(keys, axis=axis)).astype(np.int32)


def _reduce(pick: np.ufunc, nan_sign: int, x: Array, axis: int) -> Array:
    result: Array
    if x.dtype.kind == "f":
        result = _unordered(pick.reduce(_ordered(x, nan_sign), axis=axis), nan_sign)
    else:
        result = pick.reduce(x, axis=axis)
    return result


def _ordered(x: Array, nan_sign: int) -> Array:
    """int32 keys in the order of the float32 numbers, NaN at the end that ``nan_sign`` names."""
    bits = np.ascontiguousarray(x).view(np.int32)
    keys = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    nan = np.isnan(x)
    return np.where(nan, np.int32(nan_sign * 0x7FFFFFFF), keys) if nan.any() else keys


def _unordered(keys: Array, nan_sign: int) -> Array:
    keys = np.where(keys == nan_sign * 0x7FFFFFFF, np.int32(0x7FC00000), keys)
    floats: Array = (keys ^ ((keys >> 31) & np.int32(0x7FFFFFFF))).view(np.float32)
    return floats


# ---------------------------------------------------------------------------------- reductions


def accumulate(state: Array, x: Array, axis: int) -> Array:
    """The 32 partials ``state`` (last axis) with the elements of ``x`` along ``axis`` added.

    Element i is added to partial i mod 32, ascending. Elements that must not be added are given as
    0.0: a partial that started at +0.0 never is -0.0, so adding +0.0 leaves its bits alone.
    """
    rows = np.moveaxis(x, axis, -1)
    missing = -rows.shape[-1] % PARTIALS
    if missing:
        rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], missing), np.float32)], axis=-1)
    rows = rows.reshape(*rows.shape[:-1], -1, PARTIALS)
    shape = np.broadcast_shapes(state.shape, (*rows.shape[:-2], PARTIALS))
    result = np.array(np.broadcast_to(state, shape))
    with np.errstate(all="ignore"):
        for i in range(rows.shape[-2]):
            result += rows[..., i, :]
    return result


def finish(state: Array) -> Array:
    """The sum of 32 partials (last axis): p with p+16, then +8, +4, +2, +1."""
    with np.errstate(all="ignore"):
        for half in (16, 8, 4, 2, 1):
            state = state[..., :half] + state[..., half:]
    result: Array = state[..., 0]
    return result


def reduce_sum(x: Array, axis: int) -> Array:
    """The sum along ``axis`` in the order of the language; integers wrap.

    More than 4096 elements are summed in chunks of 4096; the first chunk's sum is copied and the
    others are added to it, ascending.
    """
    total: Array
    if x.dtype.kind != "f":
        total = np.add.reduce(x, axis=axis, dtype=x.dtype)
        return total
    rows = np.moveaxis(x, axis, -1)
    zero = np.zeros((*rows.shape[:-1], PARTIALS), np.float32)
    total = finish(accumulate(zero, rows[..., :CHUNK], -1))
    with np.errstate(all="ignore"):
        for start in range(CHUNK, rows.shape[-1], CHUNK):
            total = total + finish(accumulate(zero, rows[..., start : start + CHUNK], -1))
    return total


# ------------------------------------------------------------------------------------ products


def dot_f32(a: Array, b: Array, acc: Array) -> Array:
    """``acc + a @ b`` for f32[..., M, K], f32[..., K, N]: one fma for each k, ascending."""
    for k in range(a.shape[-1]):
        acc = fma32(a[..., :, k, None], b[..., None, k, :], acc)
    return acc


def dot_i8(a: Array, b: Array) -> Array:
    """int32 products of i8[..., M, K] and i8[..., K, N]; leading axes broadcast, sums wrap.

    Leading axes along which only one operand extends are folded into M or N, so that a product of
    many programs is few large matrix products.
    """
    depth = a.shape[-1]
    if depth > _DOT_K:
        total = dot_i8(a[..., :_DOT_K], b[..., :_DOT_K, :])
        for start in range(_DOT_K, depth, _DOT_K):
            stop = start + _DOT_K
            total = total + dot_i8(a[..., start:stop], b[..., start:stop, :])
        return total
    return _dot_i8(a, b)


def _dot_i8(a: Array, b: Array) -> Array:
    lead = max(a.ndim, b.ndim) - 2
    a = a.reshape((1,) * (lead + 2 - a.ndim) + a.shape)
    b = b.reshape((1,) * (lead + 2 - b.ndim) + b.shape)
    shared = [i for i in range(lead) if a.shape[i] > 1 and b.shape[i] > 1]
    left = [i for i in range(lead) if i not in shared and b.shape[i] == 1]
    right = [i for i in range(lead) if i not in shared and i not in left]
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = tuple(a.shape[i] for i in shared)
    # [shared, left, M, K] @ [shared, K, right, N]
    tall = a.transpose(*shared, *right, *left, lead, lead + 1).reshape(*batch, -1, depth)
    wide = b.transpose(*shared, *left, lead, *right, lead + 1).reshape(*batch, depth, -1)
    product: Array = np.matmul(tall.astype(np.float32), wide.astype(np.float32)).astype(np.int32)
    outer = [a.shape[i] for i in left] + [rows] + [b.shape[i] for i in right] + [columns]
    order = [*shared, *left, lead, *right, lead + 1]
    result: Array = product.reshape(*batch, *outer).transpose(np.argsort(order))
    return result
