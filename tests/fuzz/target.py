"""What a fuzzer needs to know of the thing that it tries to break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

# Numbers at which counts, offsets and shifts go wrong.
NUMBERS = [0, 1, 2, 7, 31, 32, 33, 255, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**32, 2**40, 2**53, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]


@dataclass(frozen=True)
class Target:
    """``run`` takes any bytes and raises where something is wrong with Ferro; ``seeds`` are inputs
    to begin with, ``mutate`` changes one so that it stays nearly right; ``words`` are pieces that
    inputs are made of."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    words: tuple[str, ...] = ()


class Choices:
    """Decisions taken from bytes, 0 when there are no more."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, below: int) -> int:
        """A number from 0 to ``below`` - 1."""
        size = ((below - 1).bit_length() + 7) // 8
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "little") % below

    def text(self, longest: int = 64) -> str:
        """A text; bytes that are no UTF-8 become lone surrogates, as in files."""
        size = self.number(longest)
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8", "surrogateescape")

    @property
    def left(self) -> bool:
        return self._at < len(self._data)
