"""Copies of what a slot holds, on the device: to go on from there in any slot, later and often."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferro.models.cache import Cache
from ferro.runtime.device import Device
from kernels_src.snapshots import copy_rows_f16, copy_rows_f32, copy_rows_i8

PURPOSE = "cache"
COPIES: dict[Any, Any] = {
    np.dtype(np.float32): copy_rows_f32,
    np.dtype(np.float16): copy_rows_f16,
    np.dtype(np.int8): copy_rows_i8,
}
STATE = "state"


class Snapshot:
    """What a slot held after ``tokens`` tokens. Release it."""

    def __init__(self, device: Device, cache: Cache, slot: int) -> None:
        """Copies the slot. Raises OutOfMemory."""
        self.tokens = cache.end(slot)
        self._layers: list[dict[str, Any]] = []
        try:
            for buffers in cache.layers:
                self._layers.append({})
                for name, buffer in buffers.items():
                    kept = device.empty((self._rows(name), _row(buffer)), buffer.dtype, PURPOSE)
                    self._layers[-1][name] = kept
                    first = slot * _per_slot(name, cache)
                    _copy(device, _flat(buffer), kept, first, 0, self._rows(name))
        except Exception:
            self.release()
            raise

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for layer in self._layers for buffer in layer.values())

    def restore(self, device: Device, cache: Cache, slot: int, tokens: int) -> None:
        """Make ``slot`` hold the first ``tokens`` of what was kept: all of it, or any beginning
        where there are no convolutions."""
        assert 0 < tokens <= self.tokens
        for buffers, layer in zip(cache.layers, self._layers, strict=True):
            for name, kept in layer.items():
                assert name != STATE or tokens == self.tokens, "convolutions remember the end only"
                rows = 1 if name == STATE else tokens
                first = slot * _per_slot(name, cache)
                _copy(device, kept, _flat(buffers[name]), 0, first, rows)
        cache.hold(slot, tokens)

    def release(self) -> None:
        """Give the memory back."""
        for layer in self._layers:
            for buffer in layer.values():
                buffer.release()
        self._layers = []

    def _rows(self, name: str) -> int:
        return 1 if name == STATE else self.tokens


def nbytes(cache: Cache, tokens: int) -> int:
    """What a snapshot of that many tokens takes."""
    return sum(
        _row(buffer) * buffer.dtype.itemsize * (1 if name == STATE else tokens)
        for buffers in cache.layers
        for name, buffer in buffers.items()
    )


def _per_slot(name: str, cache: Cache) -> int:
    """How many rows of a flat buffer a slot has."""
    return 1 if name == STATE else cache.context


def _row(buffer: Any) -> int:
    """Elements of a row: a token of keys or values, or a slot's whole state."""
    size = 1
    for extent in buffer.shape[1:]:
        size *= extent
    return size


def _flat(buffer: Any) -> Any:
    return buffer.reshape(buffer.shape[0], _row(buffer))


def _copy(device: Device, x: Any, y: Any, x_row: int, y_row: int, count: int) -> None:
    kernel = COPIES[x.dtype]
    device.run(kernel, x=x, y=y, x_row=x_row, y_row=y_row, count=count)
