"""`breakpoint()` in a kernel: pdb at the kernel's source line, with the kernel's variables.

The interpreter runs many programs together; the debugger shows one of them at a time, as its author
wrote it: scalars and tiles of their declared shapes, constexprs, the arrays behind the buffers.
"""

from __future__ import annotations

import bdb
import pdb
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from ferro.dsl.interpreter.operations import Array, Arrays, Space
from ferro.dsl.ir import Op

Program = tuple[int, ...]


class View:
    """The variables at a breakpoint. ``variables`` are those of the program ``chosen``."""

    def __init__(
        self, op: Op, args: Arrays, buffers: Mapping[str, Any], space: Space, active: Array
    ) -> None:
        self.op, self.args, self.space = op, args, space
        self.active = np.broadcast_to(active, space.shape)
        self.variables: dict[str, Any] = dict(op.attrs["constants"])
        self.variables |= {name: buffers[held] for name, held in op.attrs["buffers"]}
        self.chosen: Program = ()
        self.choose(self._from_box(np.argwhere(self.active)[0]))

    def choose(self, program: Program) -> None:
        """Show another program. Raises ValueError for one that is not at this breakpoint."""
        at = tuple(p - s for p, s in zip(program, self.space.start, strict=False))
        inside = all(0 <= i < n for i, n in zip(at, self.space.shape, strict=False))
        if len(program) != self.space.rank or not inside or not self.active[at]:
            raise ValueError(f"program {_text(program)} is not here: {self._extent()}")
        self.chosen = program
        found: dict[str, Any] = {}
        for name, value, array in zip(self.op.attrs["names"], self.op.args, self.args, strict=True):
            own = array[tuple(min(i, n - 1) for i, n in zip(at, array.shape, strict=False))]
            tile = np.broadcast_to(own, value.type.shape)[()]
            whole, dot, part = name.partition(".")
            if dot:
                found.setdefault(whole, SimpleNamespace())
                setattr(found[whole], part, tile)
            else:
                found[name] = tile
        self.variables.update(found)

    def place(self) -> str:
        """Which program is shown, and how to see others."""
        return f"program {_text(self.chosen)}; {self._extent()}; `names` lists the variables"

    def names(self) -> str:
        """Every variable with its type, one a line."""
        attrs = self.op.attrs
        lines = [f"{n}: {v.type!r}" for n, v in zip(attrs["names"], self.op.args, strict=True)]
        lines += [f"{name}: constexpr {value!r}" for name, value in attrs["constants"]]
        for name, held in attrs["buffers"]:
            lines.append(f"{name}: buffer `{held}` {list(self.variables[name].shape)}")
        return "\n".join(lines)

    def _extent(self) -> str:
        count = int(self.active.sum())
        if count == 1:
            return "no other program is here"
        last = self._from_box(np.argwhere(self.active)[-1])
        return f"{count} are here, up to {_text(last)} (`program {_text(last)}` shows it)"

    def _from_box(self, at: Array) -> Program:
        return tuple(int(i) + s for i, s in zip(at, self.space.start, strict=True))


class Debugger(pdb.Pdb):
    """pdb with two commands for kernels; it remembers whether its user asked to quit."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.left = False

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()

    def do_program(self, arg: str) -> None:
        """program I [J ...]

        Show the variables of another program of the launch, by its place in the grid.
        """
        try:
            if arg.strip():
                self.view.choose(tuple(int(word) for word in arg.replace(",", " ").split()))
        except ValueError as error:
            self.error(str(error))
            return
        self.message(self.view.place())

    def do_names(self, arg: str) -> None:
        """names

        List the kernel's variables here with their types.
        """
        self.message(self.view.names())


def stop(op: Op, args: Arrays, buffers: Mapping[str, Any], space: Space, active: Array) -> None:
    """Open pdb at ``op``'s line in the kernel's file, with the first program that gets there.

    Raises bdb.BdbQuit when the user quits.
    """
    view = View(op, args, buffers, space, active)
    line = compile("\n" * (op.span.line - 1) + "pass", op.span.file, "exec")
    debugger = Debugger(view)
    debugger.message(view.place())
    # the frame's variables are this very dictionary, so that another choice of program shows
    debugger.run(line.replace(co_name=op.attrs["within"] or "kernel"), view.variables)
    if debugger.left:
        raise bdb.BdbQuit


def _text(program: Program) -> str:
    return " ".join(map(str, program))
