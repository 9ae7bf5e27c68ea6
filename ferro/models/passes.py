"""What a pass computes: new rows of one or several sequences at once."""

from __future__ import annotations

from dataclasses import dataclass


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
