"""What a pass reads from the host: arrays of int32, brought to a device by one write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.runtime.device import Device

NONE = -1  # a row that belongs to no sequence
ALIGNED = 4096 // 4  # int32s: parts of a buffer start where every device lets them

Ints = npt.NDArray[np.int32]


class Upload:
    """Arrays by name, parts of one buffer."""

    def __init__(self, device: Device, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._places: dict[str, slice] = {}
        end = 0
        for name, shape in shapes.items():
            size = math.prod(shape)
            self._places[name] = slice(end, end + size)
            end += -(-size // ALIGNED) * ALIGNED
        self._host = np.zeros(end, np.int32)
        self._buffer = device.empty((end,), np.int32, "scratch")
        self._parts = {
            name: self._buffer.part(place.start, place.stop).reshape(shapes[name])
            for name, place in self._places.items()
        }

    def __getitem__(self, name: str) -> Any:
        """The buffer of an array."""
        return self._parts[name]

    def write(self, values: Mapping[str, Ints]) -> None:
        """Replace every array."""
        for name, place in self._places.items():
            self._host[place] = values[name].reshape(-1)
        self._buffer.write(self._host)


def padded(values: Sequence[int] | npt.NDArray[np.integer], size: int) -> Ints:
    """``values``, and NONE for each row behind them."""
    out = np.full(size, NONE, np.int32)
    out[: len(values)] = values
    return out
