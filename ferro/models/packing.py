"""Packing for models that see whole texts at once: which inputs share a pass, and what it reads.

There is no cache: keys and values live in rows of the pass. An input that is longer than the
usual pass has one for itself, so that its company does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from ferro.models.passes import ContextFull, PassError
from ferro.models.uploads import ALIGNED, Ints, Upload, padded
from ferro.runtime.device import Device

STEP = 32  # the least by which numbers of rows differ, from 32 on
QUERIES = 64  # attention takes an input's queries by so many


@dataclass(frozen=True)
class Input:
    """One sequence of a pass, all of it: its ``tokens``, which of its rows are ``wanted`` (where a
    model gives results by row), and the ``kind`` of question that it asks of a model with several
    heads."""

    tokens: tuple[int, ...]
    wanted: tuple[int, ...] = ()
    kind: int = 0

    def __len__(self) -> int:
        """Rows of the pass."""
        return len(self.tokens)


def check(inputs: Iterable[Input], vocabulary: int, most: int) -> None:
    """Raises PassError or ContextFull (with the input's number, from 0, and its length) for inputs
    that a model of ``vocabulary`` tokens and ``most`` positions does not take."""
    for i, each in enumerate(inputs):
        if not each.tokens:
            raise PassError(f"input {i} has no tokens")
        if len(each) > most:
            raise ContextFull(f"input {i} is too long: {len(each)} tokens (at most {most})")
        others = {type(token) for token in each.tokens} - {int}
        for other in others:
            if not issubclass(other, Integral):
                raise PassError(f"input {i}: a token is a whole number, not a {other.__name__}")
        strange = next((token for token in each.tokens if not 0 <= token < vocabulary), None)
        if strange is not None:
            raise PassError(f"input {i}: there is no token {strange} (there are {vocabulary})")
        if not all(0 <= row < len(each) for row in each.wanted):
            raise PassError(f"input {i}: rows {list(each.wanted)} of {len(each)} are wanted")


def packed(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Which inputs go together, by number: passes of at most ``rows`` rows, or of one input.

    The longest ones come first, and each goes where the least room is left.
    """
    passes: list[list[int]] = []
    by_room: dict[int, list[list[int]]] = {}
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        room = min((r for r in by_room if r >= lengths[i]), default=None)
        if room is None:
            passes.append([])
            found, left = passes[-1], rows - lengths[i]
        else:
            found, left = by_room[room].pop(), room - lengths[i]
            if not by_room[room]:
                del by_room[room]
        found.append(i)
        if left > 0:
            by_room.setdefault(left, []).append(found)
    return passes


@dataclass(frozen=True)
class Shape:
    """What a plan is recorded for: numbers of rows, inputs and wanted rows, and the most rows that
    an input has. All are rounded up, so that few shapes exist; what is added is empty."""

    rows: int
    inputs: int
    wanted: int
    longest: int

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> Shape:
        lengths = [len(each) for each in inputs]
        return cls(
            rounded(sum(lengths)),
            power(len(inputs)),
            power(sum(len(each.wanted) for each in inputs)),
            power(max(lengths)),
        )

    @property
    def blocks(self) -> int:
        """How many blocks of QUERIES an input has that is alone in its pass; 0 for others."""
        return -(-self.rows // QUERIES) if self.inputs == 1 else 0


def power(number: int) -> int:
    """The next of 0 and the powers of two."""
    return 1 << (number - 1).bit_length() if number else 0


def rounded(rows: int) -> int:
    """The next power of two up to 32, then steps of an eighth of one, 32 at least: above 256 less
    than an eighth is added."""
    step = max(STEP, power(rows) // 16)
    return power(rows) if rows <= STEP else -(-rows // step) * step


def upload(device: Device, shape: Shape) -> Upload:
    """What kernels read of a pass: ``tokens``, ``positions`` and ``rows`` where keys and values go
    [rows]; ``kinds`` [rows]; ``starts`` [inputs + 1]; ``keys`` [inputs, 2], the first row and their
    number; ``wanted``; ``rest`` [blocks, ALIGNED]: 0 and how many rows an input that is alone has
    from each block on."""
    return Upload(
        device,
        {
            "tokens": (shape.rows,),
            "positions": (shape.rows,),
            "rows": (shape.rows,),
            "kinds": (shape.rows,),
            "starts": (shape.inputs + 1,),
            "keys": (shape.inputs, 2),
            "wanted": (shape.wanted,),
            "rest": (shape.blocks, ALIGNED),
        },
    )


def numbers(inputs: Sequence[Input], shape: Shape) -> dict[str, Ints]:
    """The arrays of a pass on the host."""
    lengths = [len(each) for each in inputs] + [0] * (shape.inputs - len(inputs))
    starts = np.array([0, *np.add.accumulate(lengths)], np.int32)
    wanted = [
        start + row
        for start, each in zip(starts.tolist(), inputs, strict=False)
        for row in each.wanted
    ]
    total = int(starts[-1])
    rest = np.zeros((shape.blocks, ALIGNED), np.int32)
    rest[:, 1] = np.maximum(total - QUERIES * np.arange(shape.blocks), 0)
    return {
        "tokens": padded([token for each in inputs for token in each.tokens], shape.rows),
        "positions": padded(np.concatenate([np.arange(n) for n in lengths]), shape.rows),
        "rows": padded(np.arange(total), shape.rows),
        "kinds": padded([each.kind for each in inputs for _ in each.tokens], shape.rows),
        "starts": starts,
        "keys": np.stack([starts[:-1], np.array(lengths, np.int32)], 1),
        "wanted": padded(wanted, shape.wanted),
        "rest": rest,
    }
