"""How many tokens of prompts go into a pass, from how long passes took.

Knows no stream and no model: it is told of passes, and asked for a size.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferro.models.passes import rounded

STEP = 32  # from here on numbers of rows are multiples of it, so that few plans exist
LEAST, MOST = 16, 256  # rows of a slice; 16 take about 60% of the time of 32
SHORT = 64  # what has no more left to fill need not wait for streams that decode
SIZES = (1, 2, 4, 8, 16, *range(STEP, MOST + 1, STEP))
NEWEST = 0.3  # weight of the newest pass in a rate


@dataclass
class Rate:
    """Seconds a row or a pass, the newest ones counting most."""

    seconds: float | None = None

    def heard(self, seconds: float) -> None:
        before = self.seconds
        self.seconds = seconds if before is None else before + NEWEST * (seconds - before)


class Pacing:
    """Sizes of slices for a limit of time, and the decoding streams' share of it."""

    def __init__(self, slice_seconds: float, decode_share: float, most_rows: int) -> None:
        """``decode_share`` is from 0 to below 1; ``most_rows`` bounds a pass."""
        self._slice_seconds, self._share, self._most = slice_seconds, decode_share, most_rows
        self._filling, self._decoding = Rate(), Rate()
        self._owed = 0.0

    @property
    def prefill_rate(self) -> float | None:
        """Tokens of prompts a second."""
        return None if self._filling.seconds is None else 1 / self._filling.seconds

    @property
    def decode_seconds(self) -> float | None:
        """Seconds of a pass that decodes only."""
        return self._decoding.seconds

    @property
    def owes(self) -> bool:
        """Whether streams that decode have had less than their share of the time."""
        return self._owed > 0

    @property
    def rows(self) -> int:
        """How many tokens of prompts fit a slice."""
        rows = MOST
        if self._filling.seconds is not None:
            fitting = int(self._slice_seconds / self._filling.seconds)
            rows = max(LEAST, min(MOST, fitting // STEP * STEP))
        return min(rows, self._most)

    def passed(self, filled: int, seconds: float) -> None:
        """Hear of a pass: a slice of ``filled`` rows, or one token of each stream that decodes."""
        if filled:
            if filled >= LEAST or self._filling.seconds is None:
                self._filling.heard(seconds / rounded(filled))
            self._owed = seconds * self._share / (1 - self._share)
        else:
            self._decoding.heard(seconds)
            self._owed -= seconds
