"""What is made of a pooled vector on the host: fewer dimensions, length 1.

Squares are added in float64, in the same order on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class NotFinite(ArithmeticError):
    """A vector with what is no number: the model's own numbers were too large."""

    exit_code = 1


def finite(vectors: Vectors) -> Vectors:
    """``vectors`` [n, dimensions] as they are. Raises NotFinite with the first input that has a
    number which is none."""
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise NotFinite(f"the model gave no numbers for input {int(bad.argmax())}")
    return vectors


def finished(vectors: Vectors, width: int, normalise: bool) -> Vectors:
    """The first ``width`` numbers of pooled vectors [n, dimensions], of length 1 if wanted."""
    cut = vectors[:, :width]
    return normalised(cut) if normalise else np.ascontiguousarray(cut)


def normalised(vectors: Vectors) -> Vectors:
    """``vectors`` [n, dimensions] with length 1 each, float32; those of length 0 stay."""
    lengths = np.sqrt(_row_sums(vectors.astype(np.float64) ** 2))
    lengths[lengths == 0] = 1
    return (vectors / lengths[:, None]).astype(np.float32)


def _row_sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sum of each row: both halves are added, column by column, until one column is left."""
    width = 1 << max(values.shape[1] - 1, 0).bit_length()
    rest = np.zeros((len(values), width))
    rest[:, : values.shape[1]] = values
    while rest.shape[1] > 1:
        half = rest.shape[1] // 2
        rest = rest[:, :half] + rest[:, half:]
    return rest[:, 0]
