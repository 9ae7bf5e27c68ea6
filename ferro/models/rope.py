"""Tables of cosines and sines for rotary position embeddings, the same bits on every machine.

Pair i of position p turns by the angle p * base^(-2 i / dimensions) / factor / divisor_i.
Frequencies come from decimal arithmetic, whose ``ln`` and ``exp`` are correctly rounded, to 60
digits. Angles are integers: fractions of a turn in units of 2^-64, wrong by less than 2 units for
positions below 2^32. Sine and cosine of what is left of the nearest quarter of a turn are
polynomials of IEEE double ``+`` and ``*``, one numpy operation each. A result differs from the true
one by less than 0.51 ulp of float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Table = npt.NDArray[np.float32]

DIGITS = 60
TURN = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563")
UNIT = float(TURN / 2**64)  # radians
CHUNK = 1 << 16  # values

_SIN = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(9, -1, -1))
_COS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9, -1, -1))


@dataclass(frozen=True)
class Rotation:
    """How heads turn: ``dimensions`` of them in pairs, by positions divided by ``factor``."""

    base: float
    dimensions: int
    factor: float = 1.0


def tables(
    rotation: Rotation, positions: int, divisors: Sequence[float] = ()
) -> tuple[Table, Table]:
    """Cosines and sines, float32 [positions, dimensions / 2] each. ``divisors``, one for each pair,
    are what ``rope_freqs.weight`` holds. Heads that do not turn have one pair that stays."""
    if not rotation.dimensions:
        return np.ones((positions, 1), np.float32), np.zeros((positions, 1), np.float32)
    high, low = _frequencies(rotation, divisors)
    cos, sin = (np.empty((positions, len(high)), np.float32) for _ in range(2))
    step = max(1, CHUNK // max(len(high), 1))
    for first in range(0, positions, step):
        part = slice(first, min(first + step, positions))
        p = np.arange(part.start, part.stop, dtype=np.uint64)[:, None]
        # modulo 2^64: whole turns fall away
        cos[part], sin[part] = _cos_sin(p * high + (p * low >> np.uint64(32)))
    return cos, sin


def nbytes(rotation: Rotation, positions: int) -> int:
    """What the tables take on a device."""
    return 2 * 4 * positions * max(rotation.dimensions // 2, 1)


def _frequencies(
    rotation: Rotation, divisors: Sequence[float]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Turns for one position in units of 2^-96: the upper 64 bits and the lower 32."""
    with localcontext() as context:
        context.prec = DIGITS
        step = Decimal(rotation.base).ln() * 2 / rotation.dimensions
        units = []
        for i in range(rotation.dimensions // 2):
            slower = Decimal(rotation.factor) * (Decimal(divisors[i]) if len(divisors) else 1)
            units.append(int((-step * i).exp() / slower / TURN * 2**96) % 2**96)
    high = np.array([unit >> 32 for unit in units], np.uint64)
    return high, np.array([unit & 0xFFFFFFFF for unit in units], np.uint64)


def _cos_sin(angle: npt.NDArray[np.uint64]) -> tuple[Floats, Floats]:
    """Of angles in units of 2^-64 turns: the nearest quarter, and polynomials of what is left."""
    eighth = np.uint64(1 << 61)
    quarter = angle + eighth >> np.uint64(62)
    rest = (angle - (quarter << np.uint64(62))).view(np.int64)
    x = rest.astype(np.float64) * UNIT
    square = x * x
    cosine, sine = _horner(_COS, square), _horner(_SIN, square) * x
    swapped = (quarter & np.uint64(1)).astype(bool)
    cos, sin = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    # cosines are negative in the second and third quarter, sines in the third and fourth
    below = ((quarter + np.uint64(1)) & np.uint64(2)).astype(bool)
    return np.where(below, -cos, cos), np.where(quarter & np.uint64(2), -sin, sin)


def _horner(coefficients: tuple[float, ...], x: Floats) -> Floats:
    result = np.full(x.shape, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result
