"""The definition of the language: evaluates a kernel's IR with numpy.

All programs of a launch are evaluated at once, or as many as memory allows; each value carries one
leading axis for every grid axis. There is no path for a particular kernel: an operation means the
same wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ferro.dsl.collisions import watched
from ferro.dsl.interpreter.errors import CollisionError, ExecutionError, OutOfRangeError
from ferro.dsl.interpreter.evaluator import Evaluator
from ferro.dsl.interpreter.memory import Memory
from ferro.dsl.interpreter.programs import ORDERS, spaces
from ferro.dsl.interpreter.writers import Writers
from ferro.dsl.ir import Kernel
from ferro.dsl.quantised import A8, Q4, Q8

__all__ = ["ORDERS", "CollisionError", "ExecutionError", "OutOfRangeError", "interpret"]


def interpret(
    kernel: Kernel,
    buffers: Mapping[str, NDArray[Any] | Q8 | Q4 | A8],
    scalars: Mapping[str, int | float],
    grid: tuple[int, ...],
    *,
    order: str = "together",
    seed: int | None = None,
    breakpoints: bool = False,
) -> None:
    """Run ``kernel`` over ``grid`` and write into the arrays of ``buffers``.

    ``buffers`` holds an array of the declared dtype and extents for each buffer parameter,
    ``scalars`` a number for each scalar parameter and dimension. ``order`` "together" runs as many
    programs at once as memory allows, "one_by_one" each alone; ``seed`` shuffles them. Lanes that a
    mask switches off and that have no ``other`` get NaN or 0x7f7f7f7f. With ``breakpoints`` the
    kernel's `breakpoint()` opens pdb.

    Raises OutOfRangeError for an access outside of a buffer, CollisionError where two lanes or
    programs store different values to one element, ExecutionError for a range whose step is not
    positive, ValueError for an unknown order or an array that is not contiguous.
    """
    memory = Memory(buffers, Writers(watched(kernel), grid))
    for space in spaces(kernel, grid, order, seed):
        Evaluator(kernel, memory, scalars, space, breakpoints).run()
