"""Loads and stores: lanes that no mask switches off are checked against the buffer's extents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.exact import fma32
from ferro.dsl.interpreter.errors import OutOfRangeError
from ferro.dsl.interpreter.operations import Array, Arrays, Space
from ferro.dsl.interpreter.writers import Writers
from ferro.dsl.ir import Op
from ferro.dsl.quantised import A8, BLOCK, Q4, Q8

Matrix = Q8 | Q4 | A8
POISON: dict[np.dtype[Any], Any] = {
    np.dtype(t): t(np.nan) for t in (np.float32, np.float16)
} | {
    np.dtype(t): t(int.from_bytes(b"\x7f" * np.dtype(t).itemsize, "little"))
    for t in (np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8)
}  # fmt: skip


class Memory:
    """The buffers of a launch by name: contiguous arrays and quantised matrices.

    ``writers`` looks at what is stored to the buffers in which programs may collide.
    """

    def __init__(self, buffers: Mapping[str, NDArray[Any] | Matrix], writers: Writers) -> None:
        self.writers = writers
        for name, buffer in buffers.items():
            if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous:
                raise ValueError(f"the array for `{name}` is not contiguous")
        self.buffers: dict[str, Any] = dict(buffers)

    def load(self, space: Space, op: Op, args: Arrays, active: Array | None) -> Arrays:
        """Elements of an array, or dequantised elements of a weight matrix."""
        buffer, rank = self.buffers[op.attrs["buffer"]], op.attrs["rank"]
        mask = args[rank] if op.attrs["masked"] else None
        lanes = _lanes(space, mask, active, op.result.type.rank)
        index = self._checked(op, args[:rank], buffer.shape, lanes)
        dtype = op.result.dtype.numpy
        rest = args[rank + 1] if op.attrs["other"] else np.asarray(POISON[dtype])
        if index is None:
            shape = np.broadcast_shapes(*(a.shape for a in args[:rank]), rest.shape)
            return (np.broadcast_to(rest, shape),)
        weights = isinstance(buffer, (Q8, Q4))
        value = _dequantised(buffer, index) if weights else _take(buffer, index)
        if mask is not None and not mask.all():
            value = np.where(mask, value, rest)
        return (value,)

    def store(self, space: Space, op: Op, args: Arrays, active: Array | None) -> Arrays:
        """Elements of an array."""
        buffer, rank = self.buffers[op.attrs["buffer"]], op.attrs["rank"]
        mask = args[rank + 1] if op.attrs["masked"] else None
        lanes = _lanes(space, mask, active, op.args[rank].type.rank)
        index = self._checked(op, args[:rank], buffer.shape, lanes)
        if index is not None:
            at, flat = _offsets(index, buffer.shape), buffer.reshape(-1)
            self.writers.note(space, op, buffer.shape, at, lanes, [(args[rank], flat)])
            _put(flat, at, args[rank], lanes)
        return ()

    def load_block(self, space: Space, op: Op, args: Arrays, active: Array | None) -> Arrays:
        """One block of 32 and its scale for each row of a quantised matrix; 0 where masked."""
        matrix = self.buffers[op.attrs["buffer"]]
        rows, block = args[0], args[1][..., None]
        mask = args[2] if op.attrs["masked"] else None
        index = self._checked(op, (rows, block), matrix.scale.shape, _lanes(space, mask, active, 1))
        names = ("scale", "minimum")[: len(op.results) - 1]
        if index is None:
            shape = np.broadcast_shapes(rows.shape, block.shape)
            nothing = [np.zeros(shape, np.float32) for _ in names]
            return np.zeros((*shape, BLOCK), np.int8), *nothing
        at = _offsets(index, matrix.scale.shape)
        q = matrix.q.reshape(-1, BLOCK).take(at, axis=0)
        numbers = [getattr(matrix, name).take(at).astype(np.float32) for name in names]
        if mask is not None and not mask.all():
            q = np.where(mask[..., None], q, np.int8(0))
            numbers = [np.where(mask, number, np.float32(0)) for number in numbers]
        return q, *numbers

    def store_block(self, space: Space, op: Op, args: Arrays, active: Array | None) -> Arrays:
        """One block of 32, its scale and its sum for each row of an a8 matrix."""
        matrix = self.buffers[op.attrs["buffer"]]
        rows, block, q, scale = args[0], args[1][..., None], args[2], args[3]
        lanes = _lanes(space, args[4] if op.attrs["masked"] else None, active, 1)
        index = self._checked(op, (rows, block), matrix.scale.shape, lanes)
        if index is None:
            return ()
        at = _offsets(index, matrix.scale.shape)
        q = space.stretch(q, 1, BLOCK)
        if op.attrs["buffer"] in self.writers.watched:
            pieces = [(scale, matrix.scale.reshape(-1))]
            pieces += [(q[..., n], matrix.q.reshape(-1, BLOCK)[:, n]) for n in range(BLOCK)]
            self.writers.note(space, op, matrix.scale.shape, at, lanes, pieces)
        _put(matrix.scale.reshape(-1), at, scale, lanes)
        _put(matrix.sums.reshape(-1), at, np.add.reduce(q, axis=-1, dtype=np.int32), lanes)
        shape = np.broadcast_shapes(at.shape, q.shape[:-1], () if lanes is None else lanes.shape)
        chosen = slice(None) if lanes is None else np.broadcast_to(lanes, shape)
        values = np.broadcast_to(q, (*shape, BLOCK))
        matrix.q.reshape(-1, BLOCK)[np.broadcast_to(at, shape)[chosen]] = values[chosen]
        return ()

    def _checked(
        self, op: Op, index: Arrays, extents: tuple[int, ...], lanes: Array | None
    ) -> Arrays | None:
        """``index`` as int64, in range also where no lane asks; None if no lane can be in range.

        Raises OutOfRangeError for the first lane that asks for an element outside.
        """
        safe = []
        for axis, (i, extent) in enumerate(zip(index, extents, strict=True)):
            if i.min() < 0 or i.max() >= extent:
                outside = (i < 0) | (i >= extent)
                wrong = outside if lanes is None else outside & lanes
                if wrong.any():
                    value = int(np.broadcast_to(i, wrong.shape)[wrong][0])
                    raise _out_of_range(op, axis, value, extents)
                i = np.clip(i, 0, max(extent - 1, 0))
            safe.append(i.astype(np.int64))
        return None if 0 in extents else tuple(safe)


def _dequantised(matrix: Q8 | Q4, index: Arrays) -> Array:
    row, column = index
    q = matrix.q.take(row * matrix.q.shape[1] + column).astype(np.float32)
    at = row * matrix.scale.shape[1] + column // BLOCK
    scale = matrix.scale.take(at).astype(np.float32)
    if isinstance(matrix, Q4):
        return fma32(q, scale, matrix.minimum.take(at).astype(np.float32))
    value: Array = q * scale
    return value


def _lanes(space: Space, mask: Array | None, active: Array | None, rank: int) -> Array | None:
    """Which lanes really access memory; None for all."""
    if active is None:
        return mask
    programs = space.mask(active, rank)
    return programs if mask is None else programs & mask


def _offsets(index: Arrays, extents: tuple[int, ...]) -> Array:
    at: Any = 0
    for i, extent in zip(index, extents, strict=True):
        at = at * extent + i
    return np.asarray(at)


def _take(buffer: NDArray[Any], index: Arrays) -> Array:
    return buffer.take(_offsets(index, buffer.shape))


def _put(flat: Array, at: Array, value: Array, lanes: Array | None) -> None:
    if lanes is None:
        shape = np.broadcast_shapes(at.shape, value.shape)
        flat[np.broadcast_to(at, shape)] = value
        return
    shape = np.broadcast_shapes(at.shape, value.shape, lanes.shape)
    chosen = np.broadcast_to(lanes, shape)
    flat[np.broadcast_to(at, shape)[chosen]] = np.broadcast_to(value, shape)[chosen]


def _out_of_range(op: Op, axis: int, index: int, extents: tuple[int, ...]) -> OutOfRangeError:
    name = op.attrs["buffer"]
    what = "block" if op.name.endswith("_block") and axis == 1 else "index"
    return OutOfRangeError(
        Diagnostic(
            "FER801",
            op.span,
            f"`{op.name}` out of range: {what} {index} on axis {axis} of `{name}`, whose extent"
            f" is {extents[axis]}",
            help="mask the lanes that reach past the end: `mask=i < extent`",
            notes=(f"extents of `{name}`: {list(extents)}",),
        )
    )
