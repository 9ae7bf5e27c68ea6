"""Arguments made up for a kernel from its declaration: sizes, seeded contents, and comparing bits.

Used by commands and the tuner to run a kernel nobody has given arrays for. Knows no kernel: float
buffers hold values in -1..1, quantised ones the full int8 range, integer buffers a ramp from 0 to
the largest dimension (offsets and indices stay in range that way).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ferro import system
from ferro.dsl import bounds, extents, ir
from ferro.dsl.launch import limits
from ferro.dsl.quantised import A8, BLOCK, Q4, Q8, padded_cols

Arguments = dict[str, Any]
LARGEST_DEFAULT = 256  # of a dimension
MOST_ELEMENTS = 1 << 20  # of all arrays together, where every dimension is the default
DEFAULT_FLOAT = 0.125
_COPIES = 3  # made, given to a launch, compared with what a reference gives


class ArgumentsError(ValueError):
    """A size or value that does not fit the kernel's declaration."""

    exit_code = 2


class TooLarge(ArgumentsError):
    """Arguments that do not fit into this machine's memory."""

    exit_code = 3


def dimensions(kernel: ir.Kernel, given: Mapping[str, int]) -> dict[str, int]:
    """A value for each dimension: the given one, else the default.

    Raises ArgumentsError for a name that is no dimension and for a negative number.
    """
    implicit = [s.name for s in kernel.scalars if s.implicit]
    _no_strangers("dimension", given, implicit)
    if any(value < 0 for value in given.values()):
        raise ArgumentsError("a dimension cannot be negative")
    default = default_dimension(kernel)
    return {**given, **{name: default for name in implicit if name not in given}}


def default_dimension(kernel: ir.Kernel) -> int:
    """256, or the power of two below at which the kernel's arrays have 2**20 elements in all.

    It does not depend on dimensions that are given, so that giving one changes no other.
    """
    default = LARGEST_DEFAULT
    while default > 1 and _elements(kernel, default) > MOST_ELEMENTS:
        default //= 2
    return default


def _elements(kernel: ir.Kernel, size: int) -> int:
    """The elements of all arrays where every dimension is ``size``."""
    names = {
        s.name: size if s.implicit else int(_scalar(s, None, size))
        for s in kernel.scalars
        if s.value.dtype.is_int
    }
    return sum(math.prod(extents.evaluate(e, names) for e in b.extents) for b in kernel.buffers)


def make(
    kernel: ir.Kernel,
    sizes: Mapping[str, int],
    values: Mapping[str, Sequence[float]] | None = None,
    seed: int = 0,
) -> Arguments:
    """Arguments by name for ``kernel`` with the dimensions ``sizes``.

    ``values`` sets scalars (one number) and the contents of numeric buffers (repeated to fill
    them). Raises ArgumentsError for names or values that do not fit, LaunchError for sizes that the
    kernel cannot be launched with and TooLarge for more than this machine's memory: all of that
    before anything is allocated.
    """
    chosen = dict(values or {})
    sizes = dimensions(kernel, sizes)
    explicit = [s for s in kernel.scalars if not s.implicit]
    numeric = [b.name for b in kernel.buffers if isinstance(b, ir.Pointer)]
    _no_strangers("argument", chosen, [*(s.name for s in explicit), *numeric])
    largest = max(sizes.values(), default=LARGEST_DEFAULT)
    scalars = {s.name: _scalar(s, chosen.get(s.name), largest) for s in explicit}
    names = {**sizes, **{n: v for n, v in scalars.items() if isinstance(v, int)}}
    shapes = {b.name: tuple(extents.evaluate(e, names) for e in b.extents) for b in kernel.buffers}
    _check_launch(kernel, shapes, scalars)
    made: Arguments = {}
    for buffer in kernel.buffers:
        shape = shapes[buffer.name]
        # Each buffer has a stream of its own, so that one more argument changes no other.
        stream = np.random.default_rng([seed, zlib.crc32(buffer.name.encode())])
        if isinstance(buffer, ir.Quantised):
            made[buffer.name] = _quantised(buffer, shape, stream)
        else:
            made[buffer.name] = _array(buffer, shape, chosen.get(buffer.name), largest, stream)
    return {**made, **scalars}


@dataclass(frozen=True)
class _Outline:
    """All that the checks of a launch look at of an array: it has no memory."""

    shape: tuple[int, ...]
    dtype: np.dtype | None
    format: str | None

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * (self.dtype.itemsize if self.dtype is not None else 1)


def _check_launch(
    kernel: ir.Kernel, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, int | float]
) -> None:
    outlines = {
        b.name: _Outline(shapes[b.name], b.dtype.numpy, None)
        if isinstance(b, ir.Pointer)
        else _Outline(shapes[b.name], None, b.format)
        for b in kernel.buffers
    }
    bound = bounds.bind(kernel, {**outlines, **scalars})
    bounds.check(kernel, bound.scalars, bound.grid, bound.extents)
    needed = sum(outline.bytes for outline in outlines.values())
    memory = system.total_memory()
    if needed > memory // _COPIES:
        raise TooLarge(
            f"the arguments of `{kernel.name}` would take {needed / 2**30:.1f} GiB, and a run needs"
            f" {_COPIES} copies in {memory / 2**30:.1f} GiB of memory: choose smaller dimensions"
        )


def _no_strangers(kind: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            there = ", ".join(known) or "none"
            raise ArgumentsError(f"there is no {kind} `{name}` (there are: {there})")


def _scalar(scalar: ir.Scalar, given: Sequence[float] | None, largest: int) -> int | float:
    if given is not None and len(given) != 1:
        raise ArgumentsError(f"`{scalar.name}` is one number")
    if scalar.value.dtype.is_float:
        return DEFAULT_FLOAT if given is None else float(given[0])
    lo, hi = limits(scalar)
    return min(max(largest, lo), hi) if given is None else int(given[0])


def _array(
    buffer: ir.Pointer,
    shape: tuple[int, ...],
    given: Sequence[float] | None,
    largest: int,
    stream: np.random.Generator,
) -> np.ndarray:
    dtype = buffer.dtype.numpy
    if given is not None:
        return np.resize(np.array(given), shape).astype(dtype)
    if buffer.access == "out":
        return np.zeros(shape, dtype)
    if buffer.dtype.is_float:
        return stream.uniform(-1, 1, shape).astype(dtype)
    if buffer.dtype.size < 4:
        bounds = np.iinfo(dtype)
        return stream.integers(bounds.min, bounds.max, shape, dtype=dtype, endpoint=True)
    count = int(np.prod(shape, dtype=np.int64))
    return (np.arange(count) * largest // max(count - 1, 1)).astype(dtype).reshape(shape)


def _quantised(
    buffer: ir.Quantised, shape: tuple[int, ...], stream: np.random.Generator
) -> Q8 | Q4 | A8:
    rows, cols = shape
    if buffer.access == "out":
        return A8.empty(rows, cols)
    q = stream.integers(-127, 127, (rows, padded_cols(cols)), dtype=np.int8, endpoint=True)
    q[:, cols:] = 0
    scale = stream.uniform(0.001, 0.01, (rows, q.shape[1] // BLOCK))
    if buffer.format == "q4":
        low = stream.uniform(-0.05, 0.0, scale.shape)
        return Q4(q & 15, scale.astype(np.float16), low.astype(np.float16), cols)
    if buffer.format == "q8":
        return Q8(q, scale.astype(np.float16), cols)
    return A8(q, scale.astype(np.float32), cols)


def copy(arguments: Arguments) -> Arguments:
    """The same arguments in fresh memory, for a launch that must not see another one's output."""
    return {name: _copied(value) for name, value in arguments.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Q8 | Q4 | A8):
        return value.copied()
    return value.copy() if isinstance(value, np.ndarray) else value


def written(kernel: ir.Kernel) -> list[str]:
    """The buffers that a launch writes."""
    return [b.name for b in kernel.buffers if b.access != "in"]


def differing(a: Any, b: Any) -> int:
    """How many elements of two results differ in their bits; a NaN equals any NaN."""
    if isinstance(a, Q8 | A8):
        return differing(a.q, b.q) + differing(a.scale, b.scale)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{a.dtype}{list(a.shape)} cannot be compared with {b.dtype}{list(b.shape)}"
        )
    bits = np.dtype(f"u{a.dtype.itemsize}")
    wrong = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    if a.dtype.kind == "f":
        wrong &= ~(np.isnan(a) & np.isnan(b))
    return int(np.count_nonzero(wrong))


def traffic(kernel: ir.Kernel, arguments: Arguments) -> int:
    """Bytes of all buffers, each counted once a direction: the least a launch has to move."""
    sizes = {b.name: arguments[b.name].nbytes for b in kernel.buffers}
    both = sum(sizes[b.name] for b in kernel.buffers if b.access == "inout")
    return sum(sizes.values()) + both
