"""Binds arguments to a kernel: dimensions, extents, scalars and grid, with errors for people.

Used alike by the interpreter and by devices. A buffer argument is a numpy array, a host form of
``ferro.dsl.quantised`` or anything with ``shape`` and ``dtype`` (``format`` for quantised ones).
Nothing here runs or copies; ``bounds.py`` proves the accesses of what was bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ferro.dsl import extents, ir
from ferro.dsl.diagnostics import CompileError, Diagnostic, did_you_mean
from ferro.dsl.printer import buffer_text, scalar_text
from ferro.dsl.types import DType, Span

LARGEST = 2**31 - 1
_FORMATS = {"q8": "Q8", "a8": "A8"}


class LaunchError(CompileError):
    """Arguments that do not fit the kernel; ``diagnostics`` holds every finding."""


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

    Raises LaunchError with all findings: unknown or missing arguments, dtype, rank and extent
    mismatches, arrays that are not contiguous or not writable, overlapping outputs, scalars that
    are out of their range.
    """
    binder = _binders.get(kernel)
    if binder is None:
        binder = _binders[kernel] = _Binder(kernel)
    return binder.bind(arguments)


def collect(
    kernel: ir.Kernel,
    names: Sequence[str],
    positional: Sequence[object],
    named: Mapping[str, object],
) -> dict[str, object]:
    """Arguments by name from a call; ``names`` are the runtime parameters in declared order.

    Raises LaunchError for too many arguments and for one that is given twice.
    """
    if len(positional) > len(names):
        raise LaunchError(
            [
                Diagnostic(
                    "FER603",
                    kernel.span,
                    f"`{kernel.name}` takes {len(names)} arguments by position and"
                    f" got {len(positional)}",
                    f"in order: {', '.join(names)}; constexprs go by name",
                )
            ]
        )
    arguments = dict(zip(names, positional, strict=False))
    twice = [n for n in named if n in arguments]
    if twice:
        raise LaunchError(
            Diagnostic(
                "FER603",
                _span(kernel, n),
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
            value = _number(scalar, arguments.get(scalar.name))
            if isinstance(value, Diagnostic):
                found.append(value)
            else:
                scalars[scalar.name] = value
        buffers = {n: arguments.get(n) for n in self.buffers}
        signature = (
            *map(_signature, buffers.values()),
            *(scalars.get(n) for n in self.shaping),
        )
        layout = self.layouts.get(signature)
        if layout is None:
            layout = self._layout(buffers, scalars, found)
        if layout is not None and len(self.buffers) > 1:
            found += self._overlaps(buffers)
        if found or layout is None:
            raise LaunchError(found)
        if len(self.layouts) > 1024:
            self.layouts.clear()
        self.layouts[signature] = layout
        scalars.update(layout.dimensions)
        return Binding(buffers, scalars, layout.grid, layout.extents, layout.key)

    def _all_extents(self) -> list[ir.Extent]:
        return [*self.kernel.grid, *(e for b in self.kernel.buffers for e in b.extents)]

    def _strangers(self, arguments: Mapping[str, object]) -> list[Diagnostic]:
        # None stands for an optional buffer that this specialisation leaves out.
        known = sorted(self.names)
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
        """Dimensions, extents and grid; None (and findings) if the arguments do not give them."""
        for buffer in self.kernel.buffers:
            found += _array_findings(buffer, buffers[buffer.name])
        if found:
            return None
        known = {n: (int(scalars[n]), f"argument `{n}`") for n in self.shaping}
        measures = [
            extents.Measure(extent, _shape(buffers[b.name])[axis], f"axis {axis} of `{b.name}`")
            for b in self.kernel.buffers
            for axis, extent in enumerate(b.extents)
        ]
        solution = extents.solve(measures, known)
        found += [self._conflict(c) for c in solution.conflicts]
        found += self._unsolved(solution.values)
        if found:
            return None
        grid = tuple(extents.evaluate(e, solution.values) for e in self.kernel.grid)
        found += [
            self._grid_finding(axis, count)
            for axis, count in enumerate(grid)
            if not 0 <= count <= LARGEST
        ]
        if found:
            return None
        dimensions = {s.name: solution.values[s.name] for s in self.kernel.scalars if s.implicit}
        shapes = {n: _shape(v) for n, v in buffers.items()}
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
                if _overlap(buffers[written], buffers[other]):
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


def _span(kernel: ir.Kernel, name: str) -> Span:
    parameters = [*kernel.buffers, *kernel.scalars]
    return next((p.span for p in parameters if p.name == name), kernel.span)


def _signature(value: object) -> tuple[object, ...]:
    """All that the checks of an array look at, except where its memory is."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return (value.shape, value.dtype, flags.c_contiguous, flags.writeable)
    return (
        type(value),
        getattr(value, "shape", None),
        getattr(value, "dtype", None),
        getattr(value, "format", None),
    )


def _shape(value: object) -> tuple[int, ...]:
    return tuple(int(n) for n in value.shape)  # type: ignore[attr-defined]


def _array_findings(buffer: ir.Buffer, value: object) -> list[Diagnostic]:
    """What is wrong with one array, without looking at the others."""
    name, declared = buffer.name, f"it is declared `{buffer_text(buffer)}`"

    def finding(code: str, message: str, help: str, *notes: str) -> list[Diagnostic]:
        return [Diagnostic(code, buffer.span, message, help, notes)]

    if value is None:
        return finding("FER602", f"argument `{name}` is missing", declared)
    if not hasattr(value, "shape") or not (hasattr(value, "dtype") or hasattr(value, "format")):
        return finding(
            "FER604",
            f"argument `{name}` is a {type(value).__name__}, not an array",
            f"pass a numpy array or a buffer; {declared}",
        )
    wrong = _element_finding(buffer, value)
    if wrong:
        return finding(*wrong)
    shape, rank = _shape(value), len(buffer.extents)
    if len(shape) != rank:
        return finding(
            "FER606", f"`{name}` has {len(shape)} axes {list(shape)} and needs {rank}", declared
        )
    if min(shape, default=0) < 0 or math.prod(shape) > LARGEST:
        return finding(
            "FER613",
            f"`{name}` has {math.prod(shape)} elements",
            "indices are 32 bit: split it into arrays of fewer than 2**31 elements",
        )
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            return finding(
                "FER608",
                f"`{name}` is not contiguous",
                f"pass `np.ascontiguousarray({name})`",
                f"strides: {value.strides}",
            )
        if buffer.access != "in" and not value.flags.writeable:
            return finding(
                "FER610",
                f"`{name}` is written, but the array is read-only",
                f"pass a copy; {declared}",
            )
    return []


def _element_finding(buffer: ir.Buffer, value: object) -> tuple[str, ...] | None:
    """A wrong element type or block format as (code, message, help, notes...)."""
    name, format = buffer.name, getattr(value, "format", None)
    if isinstance(buffer, ir.Quantised):
        if format == buffer.format:
            return None
        wanted = _FORMATS.get(buffer.format, buffer.format)
        found = format or f"an array of {_dtype_name(value)}"
        return (
            "FER605",
            f"`{name}` must be {buffer.format} blocks and is {found}",
            f"quantise it first, for example with `{wanted}.quantise(array)`",
        )
    if format in _FORMATS:
        return (
            "FER605",
            f"`{name}` must be {buffer.dtype} and is {format} blocks",
            f"declare it `tl.{format}[...]`, or pass dequantised values",
        )
    if _numpy_dtype(value) != buffer.dtype.numpy:
        return (
            "FER605",
            f"`{name}` must be {buffer.dtype} and is {_dtype_name(value)}",
            f"convert it with `{name}.astype(np.{buffer.dtype.numpy.name})`",
        )
    return None


def _numpy_dtype(value: object) -> object:
    dtype = getattr(value, "dtype", None)
    return dtype.numpy if isinstance(dtype, DType) else dtype


def _dtype_name(value: object) -> str:
    dtype = _numpy_dtype(value)
    return str(dtype) if dtype is not None else type(value).__name__


def _overlap(a: object, b: object) -> bool:
    """True if two arguments share memory. Contiguous arrays overlap where their bounds do."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.may_share_memory(a, b))
    if a is b:
        return True
    overlaps = getattr(a, "overlaps", None)
    return bool(overlaps(b)) if overlaps is not None and type(a) is type(b) else False


def _number(scalar: ir.Scalar, value: Any) -> int | float | Diagnostic:
    """The scalar's value, or what is wrong with it."""
    name, declared = scalar.name, f"it is declared `{scalar_text(scalar)}`"

    def wrong(code: str, message: str) -> Diagnostic:
        return Diagnostic(code, scalar.span, f"argument `{name}` {message}", declared)

    if value is None:
        return wrong("FER602", "is missing")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return wrong("FER604", f"is a {type(value).__name__}, not a number")
    if scalar.value.dtype.is_float:
        number = float(value)
        if math.isfinite(number) and abs(number) > float(np.finfo(np.float32).max):
            return wrong("FER609", f"= {value} does not fit in f32")
        return number
    if not isinstance(value, (int, np.integer)):
        return wrong("FER605", f"must be an integer and is {value!r}")
    integer = int(value)
    lo, hi = limits(scalar)
    if not lo <= integer <= hi:
        return wrong("FER609", f"= {integer} is not between {lo} and {hi}")
    return integer


def limits(scalar: ir.Scalar) -> tuple[int, int]:
    """The inclusive range of an integer scalar: declared, else what its dtype holds.

    A dimension is an extent of an array, hence not negative.
    """
    info = np.iinfo(scalar.value.dtype.numpy)
    lo, hi = (0 if scalar.implicit else int(info.min)), int(info.max)
    return (lo if scalar.lo is None else scalar.lo, hi if scalar.hi is None else scalar.hi)
