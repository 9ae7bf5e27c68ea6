"""Checks of one launch argument at a time: arrays against buffers, numbers against scalars.

A finding is a ``Diagnostic`` at the parameter's declaration that names the argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ferro.dsl import ir
from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.printer import buffer_text, scalar_text
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.dsl.types import DType

LARGEST = 2**31 - 1
_FORMATS = {"q8": "Q8", "q4": "Q4", "a8": "A8"}


def signature(value: object) -> tuple[object, ...]:
    """All that the checks of an array look at, except where its memory is."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return (type(value), value.shape, value.dtype, flags.c_contiguous, flags.writeable)
    return (
        type(value),
        getattr(value, "shape", None),
        getattr(value, "dtype", None),
        getattr(value, "format", None),
        _writable(value),
    )


def shape_of(value: object) -> tuple[int, ...]:
    return tuple(int(n) for n in value.shape)  # type: ignore[attr-defined]


def known_shape(buffer: ir.Buffer, value: object) -> tuple[int, ...] | None:
    """The shape of an array that has as many axes as ``buffer`` and a size that indices reach."""
    if not _is_array(value):
        return None
    shape = shape_of(value)
    return shape if len(shape) == len(buffer.extents) and _reached(shape) else None


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and (hasattr(value, "dtype") or hasattr(value, "format"))


def _reached(shape: tuple[int, ...]) -> bool:
    return min(shape, default=0) >= 0 and math.prod(shape) <= LARGEST


def array_findings(buffer: ir.Buffer, value: object) -> Iterator[Diagnostic]:
    """All that is wrong with one array, without looking at the others."""
    name, declared = buffer.name, f"it is declared `{buffer_text(buffer)}`"

    def finding(code: str, message: str, help: str, *notes: str) -> Diagnostic:
        return Diagnostic(code, buffer.span, message, help, notes)

    if value is None:
        yield finding("FER602", f"argument `{name}` is missing", declared)
        return
    if not _is_array(value):
        yield finding(
            "FER604",
            f"argument `{name}` is a {type(value).__name__}, not an array",
            f"pass a numpy array or a buffer; {declared}",
        )
        return
    if isinstance(value, np.ma.MaskedArray):
        yield finding(
            "FER604",
            f"argument `{name}` is a masked array, whose mask a kernel does not see",
            f"pass `{name}.filled(value)`; {declared}",
        )
        return
    wrong = _element_finding(buffer, value)
    if wrong:
        yield finding(*wrong)
    shape, rank = shape_of(value), len(buffer.extents)
    if len(shape) != rank:
        yield finding(
            "FER606", f"`{name}` has {len(shape)} axes {list(shape)} and needs {rank}", declared
        )
    if not _reached(shape):
        yield finding(
            "FER613",
            f"`{name}` has {math.prod(shape)} elements",
            "indices are 32 bit: split it into arrays of fewer than 2**31 elements",
        )
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        yield finding(
            "FER608",
            f"`{name}` is not contiguous",
            f"pass `np.ascontiguousarray({name})`",
            f"strides: {value.strides}",
        )
    if buffer.access != "in" and not _writable(value):
        yield finding(
            "FER610",
            f"`{name}` is written, but the array is read-only",
            f"pass a copy; {declared}",
        )


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
            f"quantise it first, for example with `{wanted}.quantize(array)`",
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


def overlap(a: object, b: object) -> bool:
    """True if two arguments share memory. Contiguous arrays overlap where their bounds do."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.may_share_memory(a, b))
    if a is b:
        return True
    if hasattr(a, "overlaps") and type(a) is type(b):  # a device's buffers know it themselves
        return bool(a.overlaps(b))
    mine, theirs = host_arrays(a), host_arrays(b)
    return any(np.may_share_memory(x, y) for x in mine for y in theirs)


def host_arrays(value: object) -> list[np.ndarray]:
    """The numpy arrays of an argument; none for one on a device."""
    if isinstance(value, np.ndarray):
        return [value]
    return [a for a in vars(value).values() if isinstance(a, np.ndarray)] if _is_host(value) else []


def _is_host(value: object) -> bool:
    return isinstance(value, (Q8, Q4, A8))


def _writable(value: object) -> bool:
    return all(a.flags.writeable for a in host_arrays(value))


def number(scalar: ir.Scalar, value: Any) -> int | float | Diagnostic:
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
