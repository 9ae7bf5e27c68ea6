"""What a pass computes: new rows of one or several sequences at once, and what it uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.runtime.device import Device

NONE = -1  # a row that belongs to no sequence
STEP = 32
ALIGNED = 4096 // 4  # int32s: parts of a buffer start where every device lets them

Ints = npt.NDArray[np.int32]


class PassError(ValueError):
    """A pass that cannot be: a slot, a token or a position that is none."""

    exit_code = 2


class ContextFull(PassError):
    """More tokens than a slot holds."""


@dataclass(frozen=True)
class Piece:
    """New tokens of one sequence.

    ``slot`` is where its keys, values and states of convolutions live, ``start`` the position of
    its first token (what is before it lies in the slot; 0 begins anew), ``wanted`` how many of its
    last rows go through the LM head.
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    wanted: int = 1

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.tokens)

    def check(self, vocabulary: int) -> None:
        """Raises PassError for tokens and counts that cannot be."""
        if not self.tokens:
            raise PassError("a piece without tokens")
        if self.start < 0:
            raise PassError(f"a piece that starts at position {self.start}")
        if not 0 <= self.wanted <= len(self.tokens):
            raise PassError(f"logits of {self.wanted} rows are wanted of {len(self.tokens)} tokens")
        for token in self.tokens:
            if not 0 <= token < vocabulary:
                raise PassError(f"there is no token {token} (there are {vocabulary})")


def check(pieces: Sequence[Piece], vocabulary: int, most: int) -> None:
    """Raises PassError for pieces that make no pass of at most ``most`` rows."""
    if not pieces:
        raise PassError("a pass without pieces")
    for piece in pieces:
        piece.check(vocabulary)
    slots = [piece.slot for piece in pieces]
    twice = next((slot for slot in slots if slots.count(slot) > 1), None)
    if twice is not None:
        raise PassError(f"two pieces of one pass in slot {twice}")
    rows = sum(len(piece.tokens) for piece in pieces)
    if rows > most:
        raise PassError(f"{rows} tokens in one pass (at most {most}): give them in several")


@dataclass(frozen=True)
class Shape:
    """What a plan is recorded for: numbers of rows, pieces and wanted rows, and the most rows that
    a piece has. Numbers of rows are rounded up, so that few shapes exist."""

    rows: int
    pieces: int
    wanted: int
    longest: int

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> Shape:
        lengths = [len(piece.tokens) for piece in pieces]
        wanted = sum(piece.wanted for piece in pieces)
        return cls(rounded(sum(lengths)), len(pieces), rounded(wanted), rounded(max(lengths)))


def rounded(rows: int) -> int:
    """The next of 0, 1, 2, 4, 8, 16 and the multiples of 32."""
    if rows <= STEP // 2:
        return 1 << (rows - 1).bit_length() if rows else 0
    return -(-rows // STEP) * STEP


class Inputs:
    """What kernels read of a pass, int32 all of it, parts of one buffer that one write fills.

    ``tokens``, ``positions`` and ``rows`` of the cache [rows]; ``starts`` [pieces + 1]; ``keys``
    [pieces, 2], the first row of the cache and their number; ``slots`` [pieces]; ``wanted``.
    """

    def __init__(self, device: Device, shape: Shape) -> None:
        self.shape = shape
        sizes = {
            "tokens": shape.rows,
            "positions": shape.rows,
            "rows": shape.rows,
            "starts": shape.pieces + 1,
            "keys": 2 * shape.pieces,
            "slots": shape.pieces,
            "wanted": shape.wanted,
        }
        self._places: dict[str, slice] = {}
        end = 0
        for name, size in sizes.items():
            self._places[name] = slice(end, end + size)
            end += -(-size // ALIGNED) * ALIGNED
        self._host = np.zeros(end, np.int32)
        self._buffer = device.empty((end,), np.int32, "scratch")
        self.tokens, self.positions, self.rows, self.starts, keys, self.slots, self.wanted = (
            self._buffer.part(place.start, place.stop) for place in self._places.values()
        )
        self.keys: Any = keys.reshape(shape.pieces, 2)

    def write(self, pieces: Sequence[Piece], context: int) -> None:
        """Upload a pass of this shape; a slot has ``context`` rows of the cache."""
        for name, values in numbers(pieces, self.shape, context).items():
            self._host[self._places[name]] = values
        self._buffer.write(self._host)


def numbers(pieces: Sequence[Piece], shape: Shape, context: int) -> dict[str, Ints]:
    """The inputs of a pass on the host, ``keys`` flat."""
    lengths = [len(piece.tokens) for piece in pieces]
    starts = np.array([sum(lengths[:i]) for i in range(len(pieces) + 1)], np.int32)
    positions = np.concatenate([np.arange(piece.start, piece.end) for piece in pieces])
    first = np.array([piece.slot * context for piece in pieces])
    wanted = [np.arange(end - p.wanted, end) for p, end in zip(pieces, starts[1:], strict=True)]
    return {
        "tokens": _padded([token for piece in pieces for token in piece.tokens], shape.rows),
        "positions": _padded(positions, shape.rows),
        "rows": _padded(np.repeat(first, lengths) + positions, shape.rows),
        "starts": starts,
        "keys": np.stack([first, [piece.end for piece in pieces]], 1).astype(np.int32).reshape(-1),
        "slots": np.array([piece.slot for piece in pieces], np.int32),
        "wanted": _padded(np.concatenate(wanted), shape.wanted),
    }


def _padded(values: Sequence[int] | npt.NDArray[np.integer], size: int) -> Ints:
    out = np.full(size, NONE, np.int32)
    out[: len(values)] = values
    return out
