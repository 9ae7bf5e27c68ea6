"""The N100's GPU in numbers: fixed before anything is counted, and the only ones that a prediction
takes besides what the compiler and the launches tell. Nothing here was measured by this project.
"""

from __future__ import annotations

from dataclasses import dataclass

EUS = 24
CLOCK = 0.75e9  # Hz, the highest; a small power limit may keep it lower
LANES = 8  # of one ALU instruction (dp4a too) a cycle and EU
DP4A_OPERATIONS = 8  # of one lane: 4 products, 4 sums
BANDWIDTH = 25.9e9  # bytes a second, published for this device by the engine below
L3_BYTES = 64  # a cycle, of all EUs together
LAUNCH = 40e-6  # seconds, published likewise

PEAK_DOT = EUS * LANES * DP4A_OPERATIONS * CLOCK  # int8 operations a second
PEAK_F32 = EUS * LANES * 2 * CLOCK


@dataclass(frozen=True)
class Published:
    """A row of another engine on this device: tokens a second, of ``tokens`` in a prefill (of each
    step of decoding: 1). ``bytes`` are those that a step has to read, weights in blocks of 36
    bytes; ``operations`` int8 operations a token; ``launches`` a pass."""

    what: str
    rate: float
    tokens: int
    bytes: float
    operations: float
    launches: int = 70


# The engine keeps 32 values and a float32 scale in a block. Parameters in the products of a token
# are 287 M of the 350M model and 1.03 G of the 1.2B one, and 67 and 134 M in their LM heads, which
# a prefill needs once.
BLOCK = 36 / 32
SMALL, SMALL_HEAD = 287e6, 67e6
LARGE, LARGE_HEAD = 1.03e9, 134e6
PUBLISHED = (
    Published("LFM2.5-350M decode", 36.5, 1, (SMALL + SMALL_HEAD) * BLOCK, 0),
    Published("LFM2.5-1.2B decode", 17.0, 1, (LARGE + LARGE_HEAD) * BLOCK, 0),
    Published("LFM2.5-350M prefill 192", 192, 192, SMALL * BLOCK, 2 * SMALL),
    Published("LFM2.5-350M prefill 762", 490, 762, SMALL * BLOCK, 2 * SMALL),
    Published("LFM2.5-350M prefill 1522", 414, 1522, SMALL * BLOCK, 2 * SMALL),
    Published("LFM2.5-1.2B prefill 762", 153, 762, LARGE * BLOCK, 2 * LARGE),
)
CALIBRATION = PUBLISHED[0]  # the one row that the model is calibrated on
TILE_SHARE = 0.46  # dp4a of EU cycles in a hand-written tile of 16 tokens without chunks
