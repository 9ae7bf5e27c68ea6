"""Binds arguments to a kernel: dimensions, extents, scalars and grid, with errors for people.

Used alike by the interpreter and by devices. A buffer argument is a numpy array, a host form of
``ferro.dsl.quantised`` or anything with ``shape`` and ``dtype`` (``format`` for quantised ones).
Nothing here runs or copies; ``bounds.py`` proves the accesses of what was bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ferro.dsl import extents, ir
from ferro.dsl.arguments import (
    LARGEST,
    array_findings,
    known_shape,
    limits,
    number,
    overlap,
    signature,
)
from ferro.dsl.diagnostics import CompileError, Diagnostic, did_you_mean, position
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.printer import buffer_text

__all__ = ["Binding", "LaunchError", "bind", "collect", "limits"]


class LaunchError(CompileError):
    """Arguments that do not fit the kernel; ``diagnostics`` holds every finding.

    ``binding`` is what ``bind`` made of arguments whose shapes and numbers fit in spite of that.
    """

    binding: Binding | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """What a launch needs. ``scalars`` holds dimensions too; ``key`` names the launch's shape:
    equal keys have equal extents and grid."""

    buffers: dict[str, Any]
    scalars: dict[str, int | float]
    grid: tuple[int, ...]
    extents: dict[str, tuple[int, ...]]
    key: tuple[tuple[str, int], ...]

    @property
    def empty(self) -> bool:
        """True if no program is to be run."""
        return 0 in self.grid


def bind(kernel: ir.Kernel, arguments: Mapping[str, object]) -> Binding:
    """Check ``arguments`` (name to array or number) against the kernel's parameters.

    Raises LaunchError with all findings, in the order of the parameters: unknown or missing
    arguments, dtype, rank and extent mismatches, arrays that are not contiguous or not writable,
    overlapping outputs, scalars that are out of their range. ``bounds.bind`` adds what the accesses
    of the kernel would do.
    """
    binder = _binders.get(kernel)
    if binder is None:
        binder = _binders[kernel] = _Binder(kernel)
    return binder.bind(arguments)


def collect(
    kernel: KernelDefinition, positional: Sequence[object], named: Mapping[str, object]
) -> dict[str, object]:
    """Arguments by name from a call that gives some by position, in the order of the kernel's
    parameters.

    Raises LaunchError for too many arguments and for one that is given twice.
    """
    names = list(kernel.parameters)
    if len(positional) > len(names):
        raise LaunchError(
            [
                Diagnostic(
                    "FER603",
                    kernel.tree.span,
                    f"`{kernel.name}` takes {len(names)} arguments by position and"
                    f" got {len(positional)}",
                    f"in order: {', '.join(names)}",
                )
            ]
        )
    arguments = dict(zip(names, positional, strict=False))
    twice = [n for n in named if n in arguments]
    if twice:
        raise LaunchError(
            Diagnostic(
                "FER603",
                kernel.parameters[n].span,
                f"argument `{n}` of `{kernel.name}` is given twice",
                "it came by position and by name: drop one",
            )
            for n in twice
        )
    return {**arguments, **named}


@dataclass(frozen=True, slots=True)
class _Layout:
    dimensions: dict[str, int]
    extents: dict[str, tuple[int, ...]]
    grid: tuple[int, ...]
    key: tuple[tuple[str, int], ...]


class _Binder:
    """The parameters of one kernel, and the layouts already found for it."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.buffers = [b.name for b in kernel.buffers]
        self.explicit = [s for s in kernel.scalars if not s.implicit]
        self.names = {*self.buffers, *(s.name for s in self.explicit)}
        self.written = [b.name for b in kernel.buffers if b.access != "in"]
        used = {n for e in self._all_extents() for n in extents.names(e)}
        self.shaping = [s.name for s in self.explicit if s.name in used]
        self.layouts: dict[tuple[object, ...], _Layout] = {}

    def bind(self, arguments: Mapping[str, object]) -> Binding:
        found: list[Diagnostic] = self._strangers(arguments)
        scalars: dict[str, int | float] = {}
        for scalar in self.explicit:
            value = number(scalar, arguments.get(scalar.name))
            if isinstance(value, Diagnostic):
                found.append(value)
            else:
                scalars[scalar.name] = value
        buffers = {n: arguments.get(n) for n in self.buffers}
        shape = (
            *map(signature, buffers.values()),
            *(scalars.get(n) for n in self.shaping),
        )
        layout = self.layouts.get(shape)
        if layout is None:
            layout = self._layout(buffers, scalars, found)
        if len(self.buffers) > 1:
            found += self._overlaps(buffers)
        bound = None
        if layout is not None and len(scalars) == len(self.explicit):
            scalars.update(layout.dimensions)
            bound = Binding(buffers, scalars, layout.grid, layout.extents, layout.key)
        if found or layout is None or bound is None:
            error = LaunchError(sorted(found, key=position))
            error.binding = bound
            raise error
        if len(self.layouts) > 1024:
            self.layouts.clear()
        self.layouts[shape] = layout
        return bound

    def _all_extents(self) -> list[ir.Extent]:
        return [*self.kernel.grid, *(e for b in self.kernel.buffers for e in b.extents)]

    def _strangers(self, arguments: Mapping[str, object]) -> list[Diagnostic]:
        # None stands for an optional buffer that this specialisation leaves out.
        known = [*self.buffers, *(s.name for s in self.explicit), *self.kernel.constants]
        return [
            Diagnostic(
                "FER601",
                self.kernel.span,
                f"`{self.kernel.name}` has no argument `{n}`",
                did_you_mean(n, known, f"its arguments are {', '.join(known)}"),
            )
            for n, value in arguments.items()
            if n not in self.names and value is not None
        ]

    def _layout(
        self,
        buffers: Mapping[str, object],
        scalars: Mapping[str, int | float],
        found: list[Diagnostic],
    ) -> _Layout | None:
        """Dimensions, extents and grid; None if the arguments do not give them. Adds findings."""
        shapes: dict[str, tuple[int, ...]] = {}
        for buffer in self.kernel.buffers:
            found += array_findings(buffer, buffers[buffer.name])
            shape = known_shape(buffer, buffers[buffer.name])
            if shape is not None:
                shapes[buffer.name] = shape
        known = {n: (int(scalars[n]), f"argument `{n}`") for n in self.shaping if n in scalars}
        measures = [
            extents.Measure(extent, shapes[b.name][axis], f"axis {axis} of `{b.name}`")
            for b in self.kernel.buffers
            if b.name in shapes
            for axis, extent in enumerate(b.extents)
        ]
        whole = len(shapes) == len(self.buffers) and len(known) == len(self.shaping)
        solution = extents.solve(measures, known)
        unsolved = self._unsolved(solution.values) if whole else []
        divisions = self._divisions(solution.values)
        problems = [*unsolved, *(divisions or [self._conflict(c) for c in solution.conflicts])]
        found += problems
        if problems or not whole:
            return None
        grid = tuple(extents.evaluate(e, solution.values) for e in self.kernel.grid)
        too_large = [
            self._grid_finding(axis, count)
            for axis, count in enumerate(grid)
            if not 0 <= count <= LARGEST
        ]
        found += too_large
        if too_large:
            return None
        dimensions = {s.name: solution.values[s.name] for s in self.kernel.scalars if s.implicit}
        key = tuple((n, solution.values[n]) for n in sorted({*dimensions, *self.shaping}))
        return _Layout(dimensions, shapes, grid, key)

    def _conflict(self, conflict: extents.Conflict) -> Diagnostic:
        measure = conflict.measure
        declared = extents.text(measure.extent)
        notes = [f"{n} is {v} ({source})" for n, v, source in conflict.reasons]
        if measure.extent[0] != "name":
            notes.append(f"{declared} is {conflict.expected}")
        buffer = self.kernel.buffer(measure.source.split("`")[1])
        return Diagnostic(
            "FER607",
            buffer.span,
            f"{measure.source} is {measure.size}, declared as {declared} = {conflict.expected}",
            f"it is declared `{buffer_text(buffer)}`",
            tuple(notes),
        )

    def _unsolved(self, values: Mapping[str, int]) -> list[Diagnostic]:
        used = {n for e in self._all_extents() for n in extents.names(e)}
        implicit = {s.name for s in self.kernel.scalars if s.implicit}
        return [
            Diagnostic(
                "FER612",
                self.kernel.span,
                f"nothing tells how large dimension `{n}` is",
                f"declare a buffer with an extent that is just `{n}`, or pass it as tl.i32",
            )
            for n in sorted((used | implicit) - set(values))
        ]

    def _divisions(self, values: Mapping[str, int]) -> list[Diagnostic]:
        """Sizes that divide by zero, of those whose names are all known."""
        known = [e for e in self._all_extents() if all(n in values for n in extents.names(e))]
        divided = {e: d for e in known for d in extents.divisors_of_zero(e, values)}
        return [
            Diagnostic(
                "FER615",
                self.kernel.span,
                f"`{extents.text(extent)}` divides by zero",
                f"`{extents.text(divisor)}` must not be 0 in a size",
                tuple(f"{n} is {values[n]}" for n in dict.fromkeys(extents.names(extent))),
            )
            for extent, divisor in divided.items()
        ]

    def _grid_finding(self, axis: int, count: int) -> Diagnostic:
        declared = extents.text(self.kernel.grid[axis])
        return Diagnostic(
            "FER614",
            self.kernel.span,
            f"axis {axis} of the grid would have {count} programs",
            f"`{declared}` must be between 0 and {LARGEST}",
        )

    def _overlaps(self, buffers: Mapping[str, object]) -> list[Diagnostic]:
        found, seen = [], set()
        for written in self.written:
            for other in self.buffers:
                pair = frozenset((written, other))
                if other == written or pair in seen:
                    continue
                seen.add(pair)
                if buffers[written] is not None and overlap(buffers[written], buffers[other]):
                    found.append(
                        Diagnostic(
                            "FER611",
                            self.kernel.buffer(written).span,
                            f"`{written}` is written and shares memory with `{other}`",
                            "programs run in any order: pass a copy, or declare one tl.inout",
                        )
                    )
        return found


_binders: WeakKeyDictionary[ir.Kernel, _Binder] = WeakKeyDictionary()
