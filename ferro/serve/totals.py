"""What the engine has done since its start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Totals:
    """Counts, and seconds that passes took. Written by the engine, read by anybody."""

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    passes: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    decode_passes: int = 0
    decode_rows: int = 0

    def passed(self, decoding: int, filled: int, seconds: float) -> None:
        """Count a pass with so many rows of either kind."""
        self.passes += 1
        self.prompt_tokens += filled
        self.decode_rows += decoding
        self.decode_passes += decoding > 0
        if filled:
            self.prefill_seconds += seconds
        else:
            self.decode_seconds += seconds
