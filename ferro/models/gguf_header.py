"""The header of a GGUF file: metadata and the list of tensors, checked before it is believed.

The reader of the ``gguf`` package does not bound counts (an array that runs past the file makes it
loop and allocate without end) and makes arrays for every text: 1.4 GB and minutes for a vocabulary
of 262,144. So the header is parsed here; the package says what the tensor types are.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ferro.models.errors import (
    CutShort,
    Damaged,
    DuplicateName,
    NotGguf,
    UnsupportedType,
    UnsupportedVersion,
    WrongShape,
)
from ferro.models.gguf_cursor import Cursor, Texts
from ferro.models.gguf_types import TYPES, TensorType

Value = int | float | bool | str | Texts | npt.NDArray[Any]

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # they differ in nothing that a little-endian file shows
ALIGNMENT = "general.alignment"
MOST_KEYS = 1 << 16
MOST_TENSORS = 1 << 16
MOST_AXES = 4
LEAST_KEY_BYTES = 8 + 1 + 4 + 1
LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8

BOOL, TEXT, ARRAY = 7, 8, 9
# value types that are numbers, as the ``struct`` module and numpy write them
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q"}
NUMBERS[12] = "<d"


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies: ``shape`` as numpy has it (rows first), bytes ``start`` to ``stop``."""

    name: str
    kind: TensorType
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) // self.kind.values * self.kind.nbytes

    @property
    def stop(self) -> int:
        return self.start + self.nbytes

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def rows(self, start: int, stop: int) -> TensorInfo:
        """Where some of its rows lie."""
        row = self.nbytes // self.shape[0]
        shape = (stop - start, *self.shape[1:])
        return TensorInfo(self.name, self.kind, shape, self.start + start * row)


@dataclass(frozen=True)
class Header:
    """Everything in front of a file's tensors."""

    version: int
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]


def read(path: str, data: mmap.mmap) -> Header:
    """The header of a mapped file. Raises the ModelError that fits."""
    cursor = Cursor(path, data)
    version = _version(cursor)
    tensors = cursor.count(LEAST_TENSOR_BYTES, MOST_TENSORS, "tensors")
    keys = cursor.count(LEAST_KEY_BYTES, MOST_KEYS, "keys")
    metadata = _metadata(cursor, keys)
    described = [_tensor(cursor) for _ in range(tensors)]
    alignment = _alignment(path, metadata)
    origin = cursor.at + -cursor.at % alignment
    placed = [replace(info, start=origin + info.start) for info in described]
    _check_places(path, placed, alignment, len(data))
    return Header(version, metadata, {info.name: info for info in placed})


def _version(cursor: Cursor) -> int:
    if cursor.data[: len(MAGIC)] != MAGIC:
        raise NotGguf(cursor.path, "not a GGUF file (it does not begin with `GGUF`)")
    cursor.at = len(MAGIC)
    version: int = cursor.number("<I", "the version")
    if version and version & 0xFFFF == 0:
        raise UnsupportedVersion(cursor.path, "big-endian GGUF files are not supported")
    if version not in VERSIONS:
        raise UnsupportedVersion(
            cursor.path, f"GGUF version {version} is not supported (supported: 2, 3)"
        )
    return version


def _metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for i in range(count):
        key = cursor.name(f"key {i}")
        if key in found:
            raise DuplicateName(cursor.path, f"damaged: two keys are called `{key}`")
        found[key] = _value(cursor, cursor.number("<I", f"the type of `{key}`"), f"`{key}`")
    return found


def _value(cursor: Cursor, kind: int, what: str) -> Value:
    if kind in NUMBERS:
        return cast(float, cursor.number(NUMBERS[kind], what))
    if kind == BOOL:
        return bool(cursor.number("<B", what))
    if kind == TEXT:
        return cursor.text(what)
    if kind == ARRAY:
        return _array(cursor, cursor.number("<I", f"the type of {what}"), what)
    raise Damaged(cursor.path, f"damaged: {what} has the unknown value type {kind}")


def _array(cursor: Cursor, kind: int, what: str) -> Texts | npt.NDArray[Any]:
    if kind == TEXT:
        return cursor.texts(what)
    if kind == BOOL:
        return cursor.numbers(np.dtype(np.uint8), what) != 0
    if kind in NUMBERS:
        return cursor.numbers(np.dtype(NUMBERS[kind]), what)
    raise Damaged(cursor.path, f"damaged: {what} is an array of the unknown value type {kind}")


def _tensor(cursor: Cursor) -> TensorInfo:
    """One entry of the list of tensors; its ``start`` still counts from where data begins."""
    name = cursor.name("a tensor's name")
    what = f"the entry of tensor `{name}`"
    axes = cursor.number("<I", what)
    if axes > MOST_AXES:
        raise Damaged(
            cursor.path, f"damaged: tensor `{name}` has {axes} axes (at most {MOST_AXES})"
        )
    shape = tuple(cursor.number("<Q", what) for _ in range(axes))[::-1]
    code, start = cursor.number("<I", what), cursor.number("<Q", what)
    kind = TYPES.get(code)
    if kind is None:
        raise UnsupportedType(cursor.path, f"tensor `{name}` has the unknown type {code}")
    if math.prod(shape) >= 1 << 63 or 0 in shape:
        raise WrongShape(cursor.path, f"tensor `{name}` has the impossible shape {list(shape)}")
    if kind.values > 1 and (not shape or shape[-1] % kind.values):
        raise WrongShape(
            cursor.path,
            f"tensor `{name}` of shape {list(shape)}: rows of type {kind} are multiples of "
            f"{kind.values} long",
        )
    return TensorInfo(name, kind, shape, start)


def _alignment(path: str, metadata: dict[str, Value]) -> int:
    value = metadata.get(ALIGNMENT, 32)
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        raise Damaged(path, f"damaged: `{ALIGNMENT}` is {value!r}, which is no power of two")
    return int(value)


def _check_places(path: str, tensors: list[TensorInfo], alignment: int, size: int) -> None:
    """Names differ, data is aligned, inside the file, and no byte belongs to two tensors."""
    names: set[str] = set()
    before: TensorInfo | None = None
    for info in sorted(tensors, key=lambda info: info.start):
        if info.name in names:
            raise DuplicateName(path, f"damaged: two tensors are called `{info.name}`")
        if info.start % alignment:
            raise Damaged(
                path,
                f"damaged: tensor `{info.name}` begins at byte {info.start}, "
                f"which is no multiple of {alignment}",
            )
        if before is not None and info.start < before.stop:
            raise Damaged(
                path, f"damaged: tensors `{before.name}` and `{info.name}` share bytes of the file"
            )
        if info.stop > size:
            raise CutShort(
                path,
                f"cut short: tensor `{info.name}` ends at byte {info.stop}, the file has {size} "
                f"({info.stop - size} bytes are missing)",
            )
        names.add(info.name)
        before = info
