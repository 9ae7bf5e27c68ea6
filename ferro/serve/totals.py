"""What the engine's lanes have done since their start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """What became of requests. Written by the engine, read by anybody."""

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0


@dataclass
class EncoderTotals(Counts):
    """Inputs that were computed, their tokens, and the seconds of their passes."""

    inputs: int = 0
    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0

    def passed(self, inputs: int, tokens: int, seconds: float) -> None:
        """Count a pass."""
        self.passes += 1
        self.inputs += inputs
        self.tokens += tokens
        self.seconds += seconds


@dataclass
class Totals(Counts):
    """Tokens of completions, and seconds that passes took."""

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
