"""What a pass computes: new rows of one or several sequences at once, and what it uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ferro.models.uploads import Ints, Upload, padded
from ferro.runtime.device import Device

STEP = 32


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


def upload(device: Device, shape: Shape) -> Upload:
    """What kernels read of a pass: ``tokens``, ``positions`` and ``rows`` of the cache [rows];
    ``starts`` [pieces + 1]; ``keys`` [pieces, 2], the first row of the cache and their number;
    ``slots`` [pieces]; ``wanted``."""
    return Upload(
        device,
        {
            "tokens": (shape.rows,),
            "positions": (shape.rows,),
            "rows": (shape.rows,),
            "starts": (shape.pieces + 1,),
            "keys": (shape.pieces, 2),
            "slots": (shape.pieces,),
            "wanted": (shape.wanted,),
        },
    )


def numbers(pieces: Sequence[Piece], shape: Shape, context: int) -> dict[str, Ints]:
    """The inputs of a pass on the host; a slot has ``context`` rows of the cache."""
    lengths = [len(piece.tokens) for piece in pieces]
    starts = np.array([sum(lengths[:i]) for i in range(len(pieces) + 1)], np.int32)
    positions = np.concatenate([np.arange(piece.start, piece.end) for piece in pieces])
    first = np.array([piece.slot * context for piece in pieces])
    wanted = [np.arange(end - p.wanted, end) for p, end in zip(pieces, starts[1:], strict=True)]
    return {
        "tokens": padded([token for piece in pieces for token in piece.tokens], shape.rows),
        "positions": padded(positions, shape.rows),
        "rows": padded(np.repeat(first, lengths) + positions, shape.rows),
        "starts": starts,
        "keys": np.stack([first, [piece.end for piece in pieces]], 1).astype(np.int32),
        "slots": np.array([piece.slot for piece in pieces], np.int32),
        "wanted": padded(np.concatenate(wanted), shape.wanted),
    }
