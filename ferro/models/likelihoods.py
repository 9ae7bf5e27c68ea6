"""Weights of candidates: e^x as an integer, by one routine with the same bits on every machine.

It uses IEEE double +, -, *, / and rounding only, one numpy operation each, so that nothing is fused
or reordered: x = n ln 2 + r with n = rint(x / ln 2), abs(r) < 0.347; e^r by Horner's rule from the
series to r^13 / 13! (relative error below 2^-50); the result times 2^40 is cut off to an integer.
Sums of integers have no order, and comparisons of them no tolerance.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]

BITS = 40
LEAST = -28.0  # e^-28 < 2^-40: from here on a weight is 0

_PER_LN2 = 1.4426950408889634
_LN2_HIGH = 0.693147180369123816490  # 33 bits, so that n times it is exact
_LN2_LOW = 1.90821492927058770002e-10
_SERIES = tuple(1 / math.factorial(k) for k in range(13, -1, -1))


def weigh(x: Floats, scale: float = 1.0) -> Weights:
    """e^(x / scale) in units of 2^-40, cut off, for x <= 0 and scale > 0; int64 of x's shape."""
    with np.errstate(over="ignore"):
        wide = np.maximum(x.astype(np.float64) / scale, 2 * LEAST)
    turns = np.rint(wide * _PER_LN2)
    rest = (wide - turns * _LN2_HIGH) - turns * _LN2_LOW
    power = np.full(rest.shape, _SERIES[0])
    for coefficient in _SERIES[1:]:
        power = power * rest + coefficient
    return np.ldexp(power, turns.astype(np.int32) + BITS).astype(np.int64)


def part(share: float, whole: int) -> int:
    """The least integer that is at least ``share`` of ``whole``."""
    over, under = share.as_integer_ratio()
    return -(-over * whole // under)
