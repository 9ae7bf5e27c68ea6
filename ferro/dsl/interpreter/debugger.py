"""`breakpoint()` in a kernel: pdb at the kernel's source line, with the kernel's variables."""

from __future__ import annotations

import bdb
import pdb
from collections.abc import Mapping
from typing import Any

from ferro.dsl.interpreter.operations import Array, Space
from ferro.dsl.ir import Kernel, Op


class _Debugger(pdb.Pdb):
    """pdb that remembers whether its user asked to quit."""

    left = False

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()


def stop(kernel: Kernel, op: Op, variables: Mapping[str, Array], space: Space) -> None:
    """Open pdb at ``op``'s line in the kernel's file.

    Variables are arrays with one leading axis for each grid axis; with a single program these
    axes are dropped. ``first_program`` and ``programs`` tell which box of the grid is running.
    Raises bdb.BdbQuit when the user quits.
    """
    single = all(n == 1 for n in space.shape)
    shown: dict[str, Any] = {
        name: array.reshape(array.shape[space.rank :]) if single else array
        for name, array in variables.items()
    }
    place = {"first_program": space.start, "programs": space.shape, "__name__": kernel.name}
    line = compile("\n" * (op.span.line - 1) + "pass", op.span.file, "exec")
    debugger = _Debugger()
    debugger.run(line, place | shown, None)
    if debugger.left:
        raise bdb.BdbQuit
