"""``Buffer``, what kernels take on every device: an array, or a block-quantised matrix.

The memory behind it belongs to a ``Memory``, which says how bytes get there and back.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ferro.dsl.quantised import A8
from ferro.dsl.types import DTYPES
from ferro.runtime.errors import CallError, DeviceError, OutOfMemory

if TYPE_CHECKING:
    from ferro.runtime.memory import Memory

Array = npt.NDArray[Any]
ELEMENTS = tuple(dtype.numpy for dtype in DTYPES.values() if dtype.kind != "bool")


class Buffer:
    """An array on a device: ``shape`` and numpy ``dtype``; or, with ``format`` "q8" or "a8", a
    quantised matrix of that shape in the device's layout.

    ``layout`` of a q8 matrix is (rows a block, biased). Parts of a buffer share its memory. Every
    use raises DeviceError once the buffer was released or its device closed.
    """

    def __init__(
        self,
        owner: Memory,
        memory: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        nbytes: int,
        purpose: str,
        format: str = "",
        layout: tuple[int, bool] | None = None,
        base: Buffer | None = None,
        offset: int = 0,
    ) -> None:
        self.owner, self.memory, self.shape, self.dtype = owner, memory, shape, dtype
        self.nbytes, self.purpose, self.format, self.layout = nbytes, purpose, format, layout
        self.base, self.offset = base, offset
        # the allocation, by number: a reference to itself would keep the buffer from being freed
        self.root = id(self if base is None else base)
        self.finalizer: Callable[[], object] | None = None
        self._parts: list[weakref.ref[Buffer]] = []
        # what a launch needs to know of the argument, besides where it is
        self.signature = (shape, dtype.char, format, layout)

    def __repr__(self) -> str:
        kind = self.format or str(self.dtype)
        return f"Buffer({kind}{list(self.shape)}, {self.purpose} on {self.owner.name})"

    def read(self) -> Any:
        """The values: a new numpy array, or an ``A8``. Waits for the launches before."""
        self.owner.check_open()
        if self.format in ("q8", "q4"):
            raise DeviceError("q8 weights are not read back from a device")
        if self.format == "a8":
            return self.owner.read_a8(self)
        data = host_array(self.shape, self.dtype)
        self.owner.download(self, data)
        return data

    def read_into(self, data: Array) -> None:
        """Like ``read`` for an array, into a contiguous one of the same shape and dtype."""
        self._same(data)
        if not data.flags.c_contiguous:
            raise DeviceError("the array must be contiguous")
        if not data.flags.writeable:
            raise DeviceError("the array is read-only")
        self.owner.download(self, data)

    def write(self, data: Any) -> None:
        """Replace the values: by an array of the same shape and dtype, or by an ``A8``."""
        if self.format == "a8" and isinstance(data, A8):
            if data.shape != self.shape:
                raise DeviceError(f"a8 of shape {data.shape} into {self!r}")
            self.owner.write_a8(self, data)
            return
        array = data if isinstance(data, np.ndarray) else np.asarray(data)
        self._same(array)
        self.owner.upload(self, np.asarray(array, order="C"))

    def part(self, start: int, stop: int) -> Buffer:
        """Elements ``start`` to ``stop`` of the first axis, sharing memory.

        Raises DeviceError where the start does not meet the device's alignment.
        """
        if not all(_is_whole(n) for n in (start, stop)):
            raise CallError(f"rows are whole numbers, not {start!r} to {stop!r}")
        if self.format or not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise DeviceError(f"rows {start} to {stop} are no part of {self!r}")
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        origin, size = start * row, (stop - start) * row
        if origin % self.owner.alignment:
            raise DeviceError(
                f"a part may start at multiples of {self.owner.alignment} bytes here, "
                f"row {start} of {self!r} is at byte {origin}"
            )
        return self._sharing((stop - start, *self.shape[1:]), origin, size)

    def reshape(self, *shape: int | Sequence[int]) -> Buffer:
        """The same memory under another shape of as many elements."""
        wanted = checked_shape(shape[0] if len(shape) == 1 else shape)
        if self.format or math.prod(wanted) != math.prod(self.shape):
            raise DeviceError(f"{self!r} cannot have shape {list(wanted)}")
        return self._sharing(wanted, 0, self.nbytes)

    def resized(self, rows: int) -> Buffer:
        """The memory of an a8 matrix as one of fewer rows. Values do not keep their rows: where
        they lie depends on how many there are. Raises DeviceError."""
        if self.format != "a8" or not 0 <= rows <= self.shape[0]:
            raise DeviceError(f"{self!r} has no {rows} rows of activations")
        shape = (rows, self.shape[1])
        size, memory = self.owner.a8_region(self.memory, shape)
        return self._sharing_with(memory, shape, self.offset, size)

    def overlaps(self, other: Buffer) -> bool:
        """True if both share memory."""
        if self.root != other.root:
            return False
        return (
            self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        )

    def release(self) -> None:
        """Give the memory back as soon as no launch needs it; the buffer and its parts are of no
        use then."""
        if self.finalizer is not None:
            self.finalizer()
        self.__dict__.pop("memory", None)
        for part in self._parts:
            shared = part()
            if shared is not None:
                shared.release()

    def __getattr__(self, name: str) -> Any:
        if name == "memory":
            raise DeviceError(f"{self!r} was released")
        raise AttributeError(name)

    def _sharing(self, shape: tuple[int, ...], origin: int, size: int) -> Buffer:
        base = self if self.base is None else self.base
        start = self.offset + origin
        memory = self.memory if size == self.nbytes else None
        if memory is None:
            memory = self.owner.region(base.memory, start, size) if size else base.memory
        return self._sharing_with(memory, shape, start, size)

    def _sharing_with(self, memory: Any, shape: tuple[int, ...], start: int, size: int) -> Buffer:
        base = self if self.base is None else self.base
        what = (shape, self.dtype, size, self.purpose, self.format)
        part = Buffer(self.owner, memory, *what, base=base, offset=start)
        base._parts = [known for known in base._parts if known() is not None]
        base._parts.append(weakref.ref(part))
        return part

    def _same(self, data: Array) -> None:
        check_plain(data)
        if self.format or data.shape != self.shape or data.dtype != self.dtype:
            raise DeviceError(f"{data.dtype}{list(data.shape)} does not match {self!r}")


def check_plain(data: Any) -> None:
    """Raise CallError for anything but a numpy array of which every element counts."""
    if isinstance(data, np.ma.MaskedArray):
        raise CallError("a masked array has no place for its mask here: pass `array.filled(value)`")
    if not isinstance(data, np.ndarray):
        raise CallError(f"a numpy array is needed, not a {type(data).__name__}")


def checked_shape(shape: Any) -> tuple[int, ...]:
    """``shape`` (one number or several) as a tuple. Raises CallError for no shape."""
    try:
        extents = (shape,) if _is_whole(shape) else tuple(shape)
    except TypeError:
        extents = (None,)
    if not all(_is_whole(n) and n >= 0 for n in extents):
        raise CallError(f"a shape is whole numbers from 0 on, such as (3, 64), not {shape!r}")
    return tuple(int(n) for n in extents)


def checked_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The numpy dtype of a buffer. Raises CallError for one that no kernel can declare."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise CallError(f"{dtype!r} is no numpy dtype ({error})") from None
    if found not in ELEMENTS:
        known = ", ".join(str(known) for known in ELEMENTS)
        raise CallError(
            f"a buffer cannot have elements of {found}, kernels have {known}: "
            "convert the array, as in `array.astype(np.float32)`"
        )
    return found


def host_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array in the host's memory. Raises OutOfMemory."""
    return _of_host(np.empty, shape, dtype)


def host_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of zeros in the host's memory. Raises OutOfMemory."""
    return _of_host(np.zeros, shape, dtype)


def _of_host(make: Callable[..., Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        return make(shape, dtype)
    except MemoryError as error:
        raise OutOfMemory(f"the host's memory does not suffice: {error}") from error


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
