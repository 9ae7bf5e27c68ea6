"""One owner for a device's buffers, with a running account by purpose.

On an integrated GPU or a CPU device every byte counted here is system memory. ``Buffer`` is what
kernels take: an array or a block-quantised matrix in the device's layout. Quantised bytes are laid
out by ``ferro.codegen.layouts``.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ferro.codegen import layouts
from ferro.dsl.quantised import A8, Q8
from ferro.runtime.errors import DeviceError, OutOfMemory
from ferro.runtime.progress import Progress

if TYPE_CHECKING:
    import pyopencl as cl

PURPOSES = ("weights", "kv", "scratch", "cache", "io")
HUGE = 2 << 20
MAP_FROM = 4 << 20
PARKED = 256 << 20
LEAST = 64
Array = npt.NDArray[Any]


class Transfers(Protocol):
    """How bytes get to and from a device; copies return when they are complete."""

    progress: Progress

    def finish(self) -> None: ...

    def upload(self, memory: cl.Buffer, data: Array) -> None: ...

    def download(self, memory: cl.Buffer, data: Array) -> None: ...


class Account:
    """Bytes held on a device by purpose, and the most that were held at once."""

    def __init__(self) -> None:
        self.held = dict.fromkeys(PURPOSES, 0)
        self.peak = 0
        # a buffer's finalizer may run while its thread is in here
        self._lock = threading.RLock()

    @property
    def total(self) -> int:
        return sum(self.held.values())

    def take(self, purpose: str, size: int) -> None:
        with self._lock:
            self.held[purpose] += size
            self.peak = max(self.peak, self.total)

    def give(self, purpose: str, size: int) -> None:
        with self._lock:
            self.held[purpose] -= size

    def __str__(self) -> str:
        parts = [f"{purpose} {megabytes(size)}" for purpose, size in self.held.items() if size]
        return ", ".join(parts) or "nothing"


def megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size} bytes"


class Memory:
    """Allocates on one OpenCL context, within the device's limits.

    ``mapped``: the device is the host's processor, so that large buffers are memory that Ferro
    maps itself, on huge pages (30.9 instead of 24.9 GB/s reading on the development machine).
    """

    def __init__(
        self,
        name: str,
        context: cl.Context,
        transfers: Transfers,
        largest: int,
        total: int,
        alignment: int,
        mapped: bool,
    ) -> None:
        self.name, self.context, self.transfers = name, context, transfers
        self.largest, self.total, self.alignment, self.mapped = largest, total, alignment, mapped
        self.account = Account()

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike, purpose: str = "io") -> Buffer:
        """An uninitialised buffer of this shape and numpy dtype. Raises OutOfMemory."""
        kind = np.dtype(dtype)
        return self._buffer(tuple(shape), kind, math.prod(shape) * kind.itemsize, purpose)

    def copy(self, data: Array, purpose: str = "io") -> Buffer:
        """A buffer with the values of a contiguous array."""
        values = np.asarray(data)
        buffer = self.array(values.shape, values.dtype, purpose)
        buffer.write(values)
        return buffer

    def weights(self, data: Q8, lanes: int, biased: bool, purpose: str = "weights") -> Buffer:
        """A q8 matrix repacked for blocks of ``lanes`` rows."""
        size = layouts.q8_bytes(data.rows, data.cols)
        buffer = self._buffer(data.shape, np.dtype(np.uint8), size, purpose, "q8", (lanes, biased))
        self._put(buffer, layouts.pack_q8(data.q, data.scale, lanes, biased))
        return buffer

    def activations(self, rows: int, cols: int, purpose: str = "scratch") -> Buffer:
        """An a8 matrix of zeros, to be written by kernels."""
        size = layouts.a8_bytes(rows, cols)
        buffer = self._buffer((rows, cols), np.dtype(np.uint8), size, purpose, "a8")
        self._put(buffer, np.zeros(size, np.uint8))
        return buffer

    def scratch(self, size: int) -> Buffer:
        """Bytes that live between the entries of a program."""
        return self._buffer((size,), np.dtype(np.uint8), size, "scratch")

    def raw(self, size: int, purpose: str) -> tuple[cl.Buffer, Callable[[], object]]:
        """Memory of at least ``size`` bytes, and the call that frees it when launches allow."""
        self._check(size, purpose)
        try:
            memory = self._allocate(max(size, LEAST))
        except Exception as error:
            raise OutOfMemory(self._refusal(size, purpose, str(error))) from error
        self.account.take(purpose, size)

        free = partial(self._free, memory, size, purpose)
        return memory, partial(self.transfers.progress.when_complete, size, free)

    def _free(self, memory: cl.Buffer, size: int, purpose: str) -> None:
        """Ends with the last reference to ``memory``, and so to the host memory behind it."""
        self.account.give(purpose, size)

    def _buffer(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        size: int,
        purpose: str,
        format: str = "",
        layout: tuple[int, bool] | None = None,
    ) -> Buffer:
        memory, give_back = self.raw(size, purpose)
        buffer = Buffer(self, memory, shape, dtype, size, purpose, format, layout)
        buffer.finalizer = weakref.finalize(buffer, give_back)
        return buffer

    def _put(self, buffer: Buffer, data: Array) -> None:
        if data.nbytes:
            self.transfers.upload(buffer.memory, data)

    def _check(self, size: int, purpose: str) -> None:
        if size > self.largest:
            limit = f"the largest buffer of {self.name} is {megabytes(self.largest)}"
            raise OutOfMemory(self._refusal(size, purpose, limit))
        parked = self.transfers.progress.parked
        if parked > PARKED or (parked and self.account.total + size > self.total):
            self.transfers.finish()
        if self.account.total + size > self.total:
            limit = f"{self.name} has {megabytes(self.total)}"
            raise OutOfMemory(self._refusal(size, purpose, limit))

    def _refusal(self, size: int, purpose: str, why: str) -> str:
        return f"no room for {megabytes(size)} of {purpose}: {why}; held now: {self.account}"

    def _allocate(self, size: int) -> cl.Buffer:
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE
        if self.mapped and size >= MAP_FROM:
            return cl.Buffer(
                self.context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=huge_pages(size)
            )
        return cl.Buffer(self.context, flags, size)


def huge_pages(size: int) -> Array:
    """Anonymous memory of ``size`` bytes, aligned to 2 MiB and asking for huge pages."""
    space = mmap.mmap(-1, size + HUGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            space.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without transparent huge pages: ordinary ones serve
    whole = np.frombuffer(space, np.uint8)
    start = -whole.ctypes.data % HUGE
    return whole[start : start + size]


class Buffer:
    """An array on a device: ``shape`` and numpy ``dtype``; or, with ``format`` "q8" or "a8", a
    quantised matrix of that shape in the device's layout.

    ``layout`` of a q8 matrix is (rows a block, biased). Parts of a buffer share its memory.
    """

    def __init__(
        self,
        owner: Memory,
        memory: cl.Buffer,
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
        # what a launch needs to know of the argument, besides where it is
        self.signature = (shape, dtype.char, format, layout)

    def __repr__(self) -> str:
        kind = self.format or str(self.dtype)
        return f"Buffer({kind}{list(self.shape)}, {self.purpose} on {self.owner.name})"

    def read(self) -> Any:
        """The values: a new numpy array, or an ``A8``. Waits for the launches before."""
        data = np.empty(self.nbytes if self.format else self.shape, self.dtype)
        if self.format == "q8":
            raise DeviceError("q8 weights are not read back from a device")
        if data.nbytes:
            self.owner.transfers.download(self.memory, data)
        if self.format == "a8":
            q, scale = layouts.unpack_a8(data, *self.shape)
            return A8(q.copy(), scale.copy(), self.shape[1])
        return data

    def read_into(self, data: Array) -> None:
        """Like ``read`` for an array, into a contiguous one of the same shape and dtype."""
        self._same(data)
        if data.nbytes:
            self.owner.transfers.download(self.memory, data)

    def write(self, data: Any) -> None:
        """Replace the values: by an array of the same shape and dtype, or by an ``A8``."""
        if self.format == "a8" and isinstance(data, A8):
            packed = layouts.pack_a8(data.q, data.scale)
            if data.shape != self.shape:
                raise DeviceError(f"a8 of shape {data.shape} into {self!r}")
            self.owner.transfers.upload(self.memory, packed)
            return
        array = np.asarray(data, order="C")
        self._same(array)
        if array.nbytes:
            self.owner.transfers.upload(self.memory, array)

    def part(self, start: int, stop: int) -> Buffer:
        """Elements ``start`` to ``stop`` of the first axis, sharing memory.

        Raises DeviceError where the start does not meet the device's alignment.
        """
        if self.format or not 0 <= start <= stop <= self.shape[0]:
            raise DeviceError(f"rows {start} to {stop} are no part of {self!r}")
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        origin, size = start * row, (stop - start) * row
        if origin % self.owner.alignment:
            raise DeviceError(
                f"a part may start at multiples of {self.owner.alignment} bytes here, "
                f"row {start} of {self!r} is at byte {origin}"
            )
        shape = (stop - start, *self.shape[1:])
        return self._sharing(shape, self.dtype, origin, size)

    def reshape(self, *shape: int) -> Buffer:
        """The same memory under another shape of as many elements."""
        if self.format or math.prod(shape) != math.prod(self.shape):
            raise DeviceError(f"{self!r} cannot have shape {list(shape)}")
        return self._sharing(shape, self.dtype, 0, self.nbytes)

    def overlaps(self, other: Buffer) -> bool:
        """True if both share memory."""
        if self.root != other.root:
            return False
        return (
            self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        )

    def release(self) -> None:
        """Give the memory back as soon as no launch needs it; the buffer is of no use then."""
        if self.finalizer is not None:
            self.finalizer()
        self.__dict__.pop("memory", None)

    def __getattr__(self, name: str) -> Any:
        if name == "memory":
            raise DeviceError(f"{self!r} was released")
        raise AttributeError(name)

    def _sharing(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], origin: int, size: int
    ) -> Buffer:
        base = self if self.base is None else self.base
        start = self.offset + origin
        memory = base.memory
        if size and (start, size) != (0, base.nbytes):
            memory = base.memory.get_sub_region(start, size)
        return Buffer(self.owner, memory, shape, dtype, size, self.purpose, base=base, offset=start)

    def _same(self, data: Array) -> None:
        if self.format or data.shape != self.shape or data.dtype != self.dtype:
            raise DeviceError(f"{data.dtype}{list(data.shape)} does not match {self!r}")
        if not data.flags.c_contiguous:
            raise DeviceError("the array must be contiguous")
