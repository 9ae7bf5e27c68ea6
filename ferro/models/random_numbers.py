"""Random numbers that are a function of their place: no state, the same on every machine.

Philox4x32-10: J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel random numbers: as easy as 1, 2,
3", 2011.
"""

from __future__ import annotations

ROUNDS = 10
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words for a counter of four words and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def draw(seed: int, stream: int, position: int) -> int:
    """64 random bits; of each of the three numbers the low 64 bits count."""
    words = [value >> shift & _MASK for value in (position, stream, seed) for shift in (0, 32)]
    low, high, _, _ = philox((words[0], words[1], words[2], words[3]), (words[4], words[5]))
    return high << 32 | low
