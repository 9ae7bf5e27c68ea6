"""Weights of a few evenly spaced levels as Q8 blocks: the grid stays a grid.

A block of the 4 and 5 bit types holds the values step * q + least, q whole from 0 to ``top``. With
a Q8 scale of step / k, k whole, they are scale * (k q + b), but for the rounding of b = least /
scale and of the scale to float16. Of the largest k for which all of it fits in int8 the one whose
largest error is the least is taken. Q4_0 and Q5_0 become Q8 without any error, that of Q4_1 is less
than half of what rounding each value by itself gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Filled = tuple[npt.NDArray[np.int8], npt.NDArray[np.float16], npt.NDArray[np.bool_]]

TRIED = 8
LARGEST = np.float32(127)
ROUNDED = np.float32(0.2887)  # root mean square of what rounding to whole numbers takes away


@dataclass(frozen=True)
class Levels:
    """n blocks: ``q`` [32, n], ``step`` and ``least`` [n]."""

    q: Floats
    step: Floats
    least: Floats
    top: int

    def quantise(self) -> Filled:
        """int8 [32, n] and float16 [n], and for which blocks [n] they serve: not for those of which
        rounding each value by itself is expected to do better, or that are not finite."""
        top = np.float32(self.top)
        k, b, scale = (np.zeros(self.step.shape, np.float32) for _ in range(3))
        with np.errstate(all="ignore"):
            reach = np.maximum(np.abs(self.least), np.abs(self.least + top * self.step))
            most = np.floor(LARGEST / (reach / np.abs(self.step)))
            found = reach / LARGEST * ROUNDED
            for fewer in range(TRIED):
                count = most - np.float32(fewer)
                size = (self.step / count).astype(np.float16).astype(np.float32)
                first = np.rint(self.least / size)
                last = first + top * count
                low, high = self.least - first * size, self.least + top * self.step - last * size
                error = np.maximum(np.abs(low), np.abs(high))
                fits = (np.abs(first) <= LARGEST) & (np.abs(last) <= LARGEST)
                better = fits & (count >= 1) & (size != 0) & (error < found)
                for kept, new in ((found, error), (k, count), (b, first), (scale, size)):
                    np.copyto(kept, new, where=better)
        return (self.q * k + b).astype(np.int8), scale.astype(np.float16), scale != 0
