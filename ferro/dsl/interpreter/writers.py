"""Who wrote each element of a buffer, to tell where two lanes or programs write different values.

On a device either value could stay. Turns of a loop in one program may overwrite each other: they
have an order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.interpreter.errors import CollisionError
from ferro.dsl.interpreter.operations import Array, Space
from ferro.dsl.ir import Op

_NOBODY = -1
_SEVERAL = -2

Piece = tuple[Array, NDArray[Any]]


class Writers:
    """The last writers of the elements of ``watched`` buffers in a launch over ``grid``."""

    def __init__(self, watched: Collection[str], grid: tuple[int, ...]) -> None:
        self.watched = watched
        self.grid = grid or (1,)
        self._last: dict[str, NDArray[np.int64]] = {}

    def note(
        self,
        space: Space,
        op: Op,
        extents: tuple[int, ...],
        at: Array,
        lanes: Array | None,
        pieces: Sequence[Piece],
    ) -> None:
        """Look at a store before it happens: to the elements ``at`` of a buffer of ``extents``.

        ``pieces`` holds what is stored there and the memory that it goes to, indexed by ``at``.
        Raises CollisionError if another lane or program stores another value there.
        """
        name = op.attrs["buffer"]
        if name not in self.watched:
            return
        if name not in self._last:
            self._last[name] = np.full(math.prod(extents), _NOBODY, np.int64)
        last, programs = self._last[name], self._programs(space, at.ndim)
        everything = [at, programs, *(p[0] for p in pieces), *([] if lanes is None else [lanes])]
        shape = np.broadcast_shapes(*(a.shape for a in everything))
        chosen = slice(None) if lanes is None else np.broadcast_to(lanes, shape)
        where, who = (np.broadcast_to(a, shape)[chosen].reshape(-1) for a in (at, programs))
        order = np.argsort(where, kind="stable")
        where, who = where[order], who[order]
        meets, foreign = where[1:] == where[:-1], (last[where] != _NOBODY) & (last[where] != who)
        for stored, memory in pieces:
            value = np.broadcast_to(stored, shape)[chosen].reshape(-1)[order]
            wrong = np.flatnonzero(meets & ~_alike(value[1:], value[:-1]))
            if wrong.size:
                n = int(wrong[0])
                raise self._error(op, extents, int(where[n]), int(who[n]), int(who[n + 1]))
            wrong = np.flatnonzero(foreign & ~_alike(value, memory[where]))
            if wrong.size:
                n = int(wrong[0])
                raise self._error(op, extents, int(where[n]), int(last[where[n]]), int(who[n]))
        last[where] = who
        last[where[foreign]] = _SEVERAL
        last[where[1:][meets & (who[1:] != who[:-1])]] = _SEVERAL

    def _programs(self, space: Space, rank: int) -> Array:
        """The numbers of the programs of a box, row-major in the grid."""
        number: Array = np.zeros((1,) * space.rank, np.int64)
        for axis, count in enumerate(self.grid):
            number = number * count + space.program_id(axis)
        return space.mask(number, rank - space.rank)

    def _error(
        self, op: Op, extents: tuple[int, ...], at: int, first: int, second: int
    ) -> CollisionError:
        index = ", ".join(str(int(i)) for i in np.unravel_index(at, extents))
        name, one, other = op.attrs["buffer"], self._name(first), self._name(second)
        who = f"two lanes of {one}" if first == second else f"{one} and {other}"
        return CollisionError(
            Diagnostic(
                "FER803",
                op.span,
                f"{who} write different values to `{name}[{index}]`: which one stays is left open",
                help="give each lane and program elements of its own, or write one value",
                notes=(f"extents of `{name}`: {list(extents)}",),
            )
        )

    def _name(self, program: int) -> str:
        if program == _SEVERAL:
            return "programs before"
        numbers = (int(n) for n in np.unravel_index(program, self.grid))
        return f"program ({', '.join(map(str, numbers))})"


def _alike(a: Array, b: Array) -> Array:
    """Where two arrays have the same bits, or both NaN."""
    if a.dtype.kind != "f":
        return a == b
    bits = np.dtype(f"u{a.itemsize}")
    same: Array = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return same | (np.isnan(a) & np.isnan(b))
