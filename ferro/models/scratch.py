"""Memory of passes: one buffer for each role and width, of which passes see as many rows as they
have."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferro.runtime.device import Device

PURPOSE = "scratch"


class Scratch:
    """What it gives holds until the same role is asked for again, with any number of rows.

    Plans of several shapes may share it, since passes run one after the other; buffers have
    ``rows`` rows at least, so that they need not be made again for larger shapes.
    """

    def __init__(self, device: Device, rows: int = 0) -> None:
        self.rows = rows
        self._device = device
        self._whole: dict[tuple[Any, ...], Any] = {}
        self._seen: dict[tuple[Any, ...], Any] = {}

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._whole.values())

    def array(self, role: str, *shape: int) -> Any:
        """float32 of that shape. Raises OutOfMemory."""
        return self._part(role, shape, "")

    def activations(self, role: str, rows: int, columns: int) -> Any:
        """int8 rows with scales. Raises OutOfMemory."""
        return self._part(role, (rows, columns), "a8")

    def _part(self, role: str, shape: tuple[int, ...], format: str) -> Any:
        key = (role, format, shape)
        if key not in self._seen:
            whole, rows = self._buffer(role, shape, format), shape[0]
            if rows < whole.shape[0]:
                whole = whole.resized(rows) if format else whole.part(0, rows)
            self._seen[key] = whole
        return self._seen[key]

    def _buffer(self, role: str, shape: tuple[int, ...], format: str) -> Any:
        key = (role, format, shape[1:])
        found = self._whole.get(key)
        if found is None or found.shape[0] < shape[0]:
            rows = max(self.rows, shape[0])
            if format:
                found = self._device.activations(rows, shape[1], PURPOSE)
            else:
                found = self._device.empty((rows, *shape[1:]), np.float32, PURPOSE)
            self._whole[key] = found
        return found
