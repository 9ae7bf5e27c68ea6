"""Reading numbers and texts of a GGUF header in order, never past the end of the file.

Every count is checked against the bytes that are left before anything is made of its size.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ferro.models.errors import CutShort, Damaged

# The largest vocabulary known has 262,144 tokens and 514,906 merges.
MOST_TEXTS = 1 << 24
# Its header takes 16 MB. A hollow file costs its maker nothing, so its length bounds nothing.
LONGEST_HEADER = 1 << 28
LONGEST_NAME = 65535
LENGTH = struct.Struct("<Q")


class Texts(Sequence[str]):
    """The texts of an array, decoded when they are asked for.

    Bytes that are no UTF-8 become lone surrogates (``surrogateescape``).
    """

    def __init__(self, data: mmap.mmap, starts: npt.NDArray[np.int64]) -> None:
        self._data, self._starts = data, starts

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._text(start) for start in self._starts[index].tolist()]
        return self._text(int(self._starts[index]))

    def __iter__(self) -> Iterator[str]:
        return map(self._text, self._starts.tolist())

    def __repr__(self) -> str:
        return f"Texts({len(self)})"

    def _text(self, start: int) -> str:
        begin = start + LENGTH.size
        stop = begin + LENGTH.unpack_from(self._data, start)[0]
        return self._data[begin:stop].decode("utf-8", "surrogateescape")


class Cursor:
    """A place in a mapped file. Everything read raises CutShort or Damaged at the file's end."""

    def __init__(self, path: str, data: mmap.mmap) -> None:
        self.path, self.data = path, data
        self.at, self.end = 0, min(len(data), LONGEST_HEADER)
        self._texts = 0

    @property
    def left(self) -> int:
        """Bytes between here and the end of the file, or of the longest header."""
        return self.end - self.at

    def number(self, form: str, what: str) -> Any:
        """One number in the ``struct`` format ``form``."""
        size = struct.calcsize(form)
        if size > self.left:
            raise CutShort(self.path, f"cut short: it ends at byte {self.end}, inside {what}")
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += size
        return value

    def count(self, least: int, most: int, what: str) -> int:
        """A 64-bit count of things that take at least ``least`` bytes each, at most ``most``."""
        value: int = self.number("<Q", f"the count of {what}")
        if value > most:
            raise Damaged(self.path, f"damaged: {value} {what} (at most {most} are possible)")
        if value * least > self.left:
            raise self._past(f"{value} {what}")
        return value

    def text(self, what: str) -> str:
        """A text of any length. Bytes that are no UTF-8 become lone surrogates."""
        size = self.count(1, self.end, f"bytes of {what}")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8", "surrogateescape")

    def name(self, what: str) -> str:
        """A text that names something: not empty, of bounded length, printable UTF-8."""
        size = self.count(1, LONGEST_NAME, f"bytes of {what}")
        self.at += size
        try:
            found = self.data[self.at - size : self.at].decode("utf-8")
        except UnicodeDecodeError:
            found = ""
        if not found.isprintable() or not found:
            raise Damaged(
                self.path, f"damaged: {what} at byte {self.at - size} is empty or no printable text"
            )
        return found

    def texts(self, what: str) -> Texts:
        """A count and as many texts."""
        count = self.count(LENGTH.size, MOST_TEXTS - self._texts, f"texts of {what}")
        self._texts += count
        starts = np.empty(count, np.int64)
        at, end, data = self.at, self.end - LENGTH.size, self.data
        for i in range(count):
            if at > end:
                raise self._past(f"text {i} of {count} of {what}")
            starts[i] = at
            at += LENGTH.size + LENGTH.unpack_from(data, at)[0]
        if at > self.end:
            raise self._past(f"text {count - 1} of {count} of {what}")
        self.at = at
        return Texts(data, starts)

    def numbers(self, dtype: np.dtype[Any], what: str) -> npt.NDArray[Any]:
        """A count and as many numbers, as a read-only view of the file."""
        count = self.count(dtype.itemsize, self.end, f"elements of {what}")
        found = np.frombuffer(self.data, dtype, count, self.at) if count else np.empty(0, dtype)
        self.at += found.nbytes
        return found

    def _past(self, what: str) -> Damaged:
        return Damaged(
            self.path, f"cut short or damaged: {what} would end after byte {self.end}, the last"
        )
