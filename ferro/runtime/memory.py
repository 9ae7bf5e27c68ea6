"""One owner for a device's buffers, with a running account by purpose.

On an integrated GPU or a CPU device every byte counted here is system memory. Quantised bytes are
laid out by ``ferro.codegen.layouts``.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ferro.codegen import layouts
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.runtime.buffers import (
    Array,
    Buffer,
    check_plain,
    checked_dtype,
    checked_shape,
    host_array,
    host_zeros,
)
from ferro.runtime.errors import CallError, DeviceError, OutOfMemory
from ferro.runtime.progress import Progress

if TYPE_CHECKING:
    import pyopencl as cl

PURPOSES = ("weights", "kv", "scratch", "cache", "io")
HUGE = 2 << 20
MAP_FROM = 4 << 20
PARKED = 256 << 20
LEAST = 64


class Transfers(Protocol):
    """How bytes get to and from a device; copies return when they are complete."""

    progress: Progress

    def finish(self) -> None: ...

    def upload(self, memory: Any, data: Array) -> None: ...

    def download(self, memory: Any, data: Array) -> None: ...


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
        context: cl.Context | None,
        transfers: Transfers,
        largest: int,
        total: int,
        alignment: int,
        mapped: bool,
    ) -> None:
        self.name, self.context, self.transfers = name, context, transfers
        self.largest, self.total, self.alignment, self.mapped = largest, total, alignment, mapped
        self.account = Account()
        self.closed = False

    def check_open(self) -> None:
        """Raise DeviceError once the device was closed."""
        if self.closed:
            raise DeviceError(f"{self.name} was closed: open the device again to go on")

    def array(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike, purpose: str = "io"
    ) -> Buffer:
        """An uninitialised buffer of this shape and numpy dtype. Raises OutOfMemory, CallError."""
        kind, extents = checked_dtype(dtype), checked_shape(shape)
        return self._buffer(extents, kind, math.prod(extents) * kind.itemsize, purpose)

    def zeros(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike, purpose: str = "io"
    ) -> Buffer:
        """A buffer of zeros."""
        buffer = self.array(shape, dtype, purpose)
        self.upload(buffer, host_zeros(buffer.shape, buffer.dtype))
        return buffer

    def copy(self, data: Any, purpose: str = "io") -> Buffer:
        """A buffer with the values of an array."""
        values = data if isinstance(data, np.ndarray) else np.asarray(data)
        check_plain(values)
        buffer = self.array(values.shape, values.dtype, purpose)
        buffer.write(values)
        return buffer

    def weights(self, data: Q8 | Q4, lanes: int, biased: bool, purpose: str = "weights") -> Buffer:
        """A q8 or q4 matrix repacked for blocks of ``lanes`` rows."""
        check_weights(data)
        small = isinstance(data, Q4)
        size = (layouts.q4_bytes if small else layouts.q8_bytes)(data.rows, data.cols)
        layout = (lanes, biased and not small)
        buffer = self._buffer(data.shape, np.dtype(np.uint8), size, purpose, data.format, layout)
        self.upload(buffer, _packed(data, lanes, biased))
        return buffer

    def activations(self, rows: int, cols: int, purpose: str = "scratch") -> Buffer:
        """An a8 matrix of zeros, to be written by kernels."""
        shape = checked_shape((rows, cols))
        size = layouts.a8_bytes(*shape)
        buffer = self._buffer(shape, np.dtype(np.uint8), size, purpose, "a8")
        self.upload(buffer, host_zeros((size,), buffer.dtype))
        return buffer

    def a8_region(self, memory: Any, shape: tuple[int, int]) -> tuple[int, Any]:
        """How many bytes an a8 matrix of ``shape`` takes, and these of the memory of a larger
        one."""
        size = layouts.a8_bytes(*shape)
        return size, self.region(memory, 0, size) if size else memory

    def read_a8(self, buffer: Buffer) -> A8:
        """The values of an a8 buffer."""
        data = host_array((buffer.nbytes,), buffer.dtype)
        self.download(buffer, data)
        rows, cols = buffer.shape
        q, scale = layouts.unpack_a8(data, rows, cols)
        return A8(q.copy(), scale.copy(), cols)

    def write_a8(self, buffer: Buffer, data: A8) -> None:
        """Replace the values of an a8 buffer of the same shape."""
        self.upload(buffer, layouts.pack_a8(data.q, data.scale))

    def upload(self, buffer: Buffer, data: Array) -> None:
        """Copy the bytes of a contiguous array into a buffer of that size."""
        self.check_open()
        memory = buffer.memory
        if data.nbytes:
            self.transfers.upload(memory, data)

    def download(self, buffer: Buffer, data: Array) -> None:
        """Copy a buffer into a contiguous array of that size."""
        self.check_open()
        memory = buffer.memory
        if data.nbytes:
            self.transfers.download(memory, data)

    def region(self, memory: Any, start: int, size: int) -> Any:
        """``size`` bytes of ``memory`` from ``start`` on, sharing it."""
        return memory.get_sub_region(start, size)

    def scratch(self, size: int) -> Buffer:
        """Bytes that live between the entries of a program."""
        return self._buffer((size,), np.dtype(np.uint8), size, "scratch")

    def raw(
        self, size: int, purpose: str, make: Callable[[], Any] | None = None
    ) -> tuple[Any, Callable[[], object]]:
        """Memory of at least ``size`` bytes, and the call that frees it when launches allow.

        ``make`` gives memory of another form.
        """
        self._check(size, purpose)
        try:
            memory = make() if make is not None else self._allocate(max(size, LEAST))
        except Exception as error:
            raise OutOfMemory(self._refusal(size, purpose, str(error))) from error
        self.account.take(purpose, size)

        free = partial(self._free, memory, size, purpose)
        return memory, partial(self.transfers.progress.when_complete, size, free)

    def _free(self, memory: Any, size: int, purpose: str) -> None:
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
        make: Callable[[], Any] | None = None,
    ) -> Buffer:
        memory, give_back = self.raw(size, purpose, make)
        buffer = Buffer(self, memory, shape, dtype, size, purpose, format, layout)
        buffer.finalizer = weakref.finalize(buffer, give_back)
        return buffer

    def _check(self, size: int, purpose: str) -> None:
        self.check_open()
        if purpose not in PURPOSES:
            raise CallError(f"`{purpose}` is no purpose, one of {', '.join(PURPOSES)} is")
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

    def _allocate(self, size: int) -> Any:
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


def _packed(data: Q8 | Q4, lanes: int, biased: bool) -> Array:
    if isinstance(data, Q4):
        return layouts.pack_q4(data.q, data.scale, data.minimum, lanes)
    return layouts.pack_q8(data.q, data.scale, lanes, biased)


def check_weights(data: object) -> None:
    """Raise CallError for anything but a ``Q8`` or a ``Q4``."""
    if not isinstance(data, (Q8, Q4)):
        raise CallError(
            f"weights are a Q8 or a Q4 matrix, not a {type(data).__name__}: quantise an array with "
            "`Q8.quantize(array)`"
        )
