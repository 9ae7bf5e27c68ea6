"""Element types, tile types and source spans: the vocabulary shared by every stage.

Owns no behaviour beyond naming and comparing types; numpy dtypes are given so that the
interpreter, the host and the device agree on one memory representation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type. ``size`` is in bytes as stored in memory (bool lives in registers only)."""

    name: str
    size: int
    kind: str  # "float" | "int" | "uint" | "bool"
    numpy: np.dtype

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        # Types are compared by identity, so a kernel from another process must have ours.
        return (dtype_named, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")


f32 = DType("f32", 4, "float", np.dtype(np.float32))
f16 = DType("f16", 2, "float", np.dtype(np.float16))
i32 = DType("i32", 4, "int", np.dtype(np.int32))
u32 = DType("u32", 4, "uint", np.dtype(np.uint32))
i16 = DType("i16", 2, "int", np.dtype(np.int16))
u16 = DType("u16", 2, "uint", np.dtype(np.uint16))
i8 = DType("i8", 1, "int", np.dtype(np.int8))
u8 = DType("u8", 1, "uint", np.dtype(np.uint8))
boolean = DType("bool", 1, "bool", np.dtype(np.bool_))

DTYPES: dict[str, DType] = {d.name: d for d in (f32, f16, i32, u32, i16, u16, i8, u8, boolean)}


def dtype_named(name: str) -> DType:
    """The element type of that name. Raises KeyError."""
    return DTYPES[name]


# Arithmetic is defined on these; the others are storage types that are cast after a load.
ARITHMETIC = (f32, i32, u32)


@dataclass(frozen=True)
class TileType:
    """A tile of ``shape`` (row-major, () is a scalar) and one element type."""

    dtype: DType
    shape: tuple[int, ...] = ()

    def __repr__(self) -> str:
        if not self.shape:
            return self.dtype.name
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def with_dtype(self, dtype: DType) -> TileType:
        return TileType(dtype, self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> TileType:
        return TileType(self.dtype, shape)


@dataclass(frozen=True)
class Span:
    """A piece of kernel source: 1-based lines and columns, end exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Span("<built-in>", 0, 0, 0, 0)
