"""A small maker of IR operations for the passes of this package (types are known there)."""

from __future__ import annotations

from typing import Any

from ferro.dsl.ir import Extent, Op, Value
from ferro.dsl.types import NOWHERE, DType, Span, TileType, boolean, i32


class Ops:
    """Collects operations in order; every method returns the new value."""

    def __init__(self, span: Span = NOWHERE, scalars: dict[str, Value] | None = None) -> None:
        self.ops: list[Op] = []
        self.span = span
        self.scalars = scalars or {}

    def add(self, name: str, args: tuple[Value, ...], type: TileType, **attrs: Any) -> Value:
        result = Value(type)
        self.ops.append(Op(name, args, (result,), attrs, (), self.span))
        return result

    def effect(self, name: str, args: tuple[Value, ...], **attrs: Any) -> None:
        self.ops.append(Op(name, args, (), attrs, (), self.span))

    def const(self, value: int | float | bool, dtype: DType = i32) -> Value:
        return self.add("const", (), TileType(dtype), value=value)

    def arange(self, size: int, axis: str) -> Value:
        return self.add("arange", (), TileType(i32, (size,)), start=0, size=size, axis=axis)

    def binary(self, name: str, a: Value, b: Value | int) -> Value:
        """Elementwise; a scalar operand is broadcast to the other's shape."""
        b = b if isinstance(b, Value) else self.const(b, a.dtype)
        shape = a.shape or b.shape
        a, b = self.broadcast(a, shape), self.broadcast(b, shape)
        dtype = boolean if name in ("lt", "le", "gt", "ge", "eq", "ne") else a.dtype
        return self.add(name, (a, b), TileType(dtype, shape))

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype == dtype else self.add("cast", (x,), x.type.with_dtype(dtype))

    def expand(self, x: Value, axis: int) -> Value:
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        return self.add("expand", (x,), x.type.with_shape(shape), axis=axis)

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.shape == shape else self.add("broadcast", (x,), x.type.with_shape(shape))

    def extent(self, e: Extent) -> Value:
        """An i32 scalar computed from an extent expression."""
        op, *rest = e
        if op == "const":
            return self.const(rest[0])
        if op == "name":
            return self.scalars[rest[0]]
        a, b = self.extent(rest[0]), self.extent(rest[1])
        if op == "cdiv":
            return self.binary("div", self.binary("add", a, self.binary("sub", b, 1)), b)
        names = {"+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod"}
        return self.binary(names.get(op, str(op)), a, b)
