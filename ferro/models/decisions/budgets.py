"""How many tokens the parts of a prompt may have (spec: d1-decision, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from ferro.models.decisions.errors import DecisionError

MOST_TOKENS = 16384
MOST_BESIDE_IMAGES = 896
MOST_BESIDE_SOUND = 15360
LEAST_BESIDE_MEDIA = 64
MARKS = 3  # tokens around the text of an option


@dataclass(frozen=True)
class Budget:
    """Tokens of the text: all of it, the question with its mark, the text of each option."""

    whole: int
    question: int
    option: int


def whole(positions: int = 0, *, sounds: bool = False) -> int:
    """Tokens of text beside media of that many positions. Raises DecisionError."""
    if not positions:
        return MOST_TOKENS
    most = MOST_BESIDE_SOUND if sounds else MOST_BESIDE_IMAGES
    found = min(most, MOST_TOKENS - positions)
    if found < LEAST_BESIDE_MEDIA:
        raise DecisionError(
            f"the media take {positions} positions of {MOST_TOKENS}, which leaves fewer than"
            f" {LEAST_BESIDE_MEDIA} for the text"
        )
    return found


def budget(options: int, whole: int = MOST_TOKENS) -> Budget:
    """For a question of that many options."""
    found = max(96, min(24 * options + 32, whole // 2))
    return Budget(whole, max(16, found), max(2, (found - MARKS * options) // options))
