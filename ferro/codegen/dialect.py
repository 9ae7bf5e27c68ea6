"""C types and expressions of a target: the same operation on a scalar or on all lanes.

In ``simd`` a wide value is an OpenCL vector, in ``simt`` it is a private scalar of each work-item.
Bools are 0 / -1 per lane in vectors and 0 / 1 in scalars. f16 values are kept as their bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ferro.codegen.program import Target
from ferro.codegen.templates import render
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import DType, TileType

_C = {
    "f32": "float",
    "f16": "ushort",
    "i32": "int",
    "u32": "uint",
    "i16": "short",
    "u16": "ushort",
    "i8": "char",
    "u8": "uchar",
    "bool": "int",
}
_WHERE = Op("where", (), ())
_SIGNED = {1: "char", 2: "short", 4: "int"}


@dataclass(frozen=True)
class Ex:
    """A C expression that is safe as an operand; ``wide`` if it differs between lanes."""

    code: str
    dtype: DType
    wide: bool = False


class Dialect:
    """Renders expressions and collects the helper functions that they call."""

    def __init__(self, target: Target, lanes: int) -> None:
        self.target = target
        self.kind = target.kind
        self.lanes = lanes
        self.helpers: dict[str, str] = {}

    @property
    def converts_halves(self) -> bool:
        """Whether vectors of f16 become f32 by one instruction, which processors have that have
        the int8 dots of AVX-512. (PoCL calls a function for vload_half, and spills every vector
        register around it.)"""
        return self.target.dot == "vnni512" and self.lanes == 16

    @property
    def peels_wrongly(self) -> bool:
        """Whether a branch on the first turn of a loop is to be avoided.

        PoCL 3.0 peels that turn off and then mixes up what work-items keep across a barrier. Its
        work-items are those without an int8 dot instruction; a GPU's are as fast either way.
        """
        return self.kind == "simt" and self.target.dot == "emulated"

    def suffix(self, wide: bool) -> str:
        return str(self.lanes) if wide and self.kind == "simd" else ""

    def ctype(self, dtype: DType, wide: bool = False) -> str:
        """The C type of a register value (bools and f16 as described above)."""
        return _C[dtype.name] + self.suffix(wide)

    def register_type(self, dtype: DType, wide: bool) -> str:
        """The C type of an element of a kept tile.

        Work-items keep narrow integers as ``int``: Intel's vectoriser mixes up private arrays of
        bytes.
        """
        narrow = wide and self.kind == "simt" and dtype.size < 4 and dtype.name != "bool"
        return "int" if narrow else self.ctype(dtype, wide)

    def widen(self, ex: Ex) -> str:
        """The expression as a wide operand."""
        if ex.wide or self.kind == "simt":
            return ex.code
        code = f"-({ex.code})" if ex.dtype.name == "bool" else ex.code
        return f"({self.ctype(ex.dtype, True)})({code})"

    def literal(self, value: int | float | bool, dtype: DType) -> str:
        if dtype.name == "bool":
            return "1" if value else "0"
        if dtype.name == "f16":
            return f"{int(np.float16(value).view(np.uint16)):#x}"
        if dtype.is_float:
            return _float_literal(float(value))
        if dtype.name == "u32":
            return f"{int(value)}u"
        if int(value) == -(2**31):
            return "(-2147483647 - 1)"
        return str(int(value)) if value >= 0 else f"({int(value)})"

    def helper(self, name: str, wide: bool, **context: object) -> str:
        """The C name of a helper function, whose text is added to the program on first use."""
        return self.sized_helper(name, self.suffix(wide), **context)

    def sized_helper(self, name: str, n: str, **context: object) -> str:
        """``helper`` for vectors of ``n`` elements ("" for scalars)."""
        parts = [name, *(str(v) for v in context.values()), n]
        full = "ferro_" + "_".join(p for p in parts if p)
        if full not in self.helpers:
            self.helpers[full] = ""  # keeps the order of callers behind their callees
            text = render(
                self.kind,
                f"helpers/{name}",
                name=full,
                n=n,
                lanes=self.lanes,
                F="float" + n,
                I="int" + n,
                U="uint" + n,
                S=_C.get(str(context.get("dtype")), ""),
                native=bool(n) and self.converts_halves,
                intel=self.target.abi == "intel",
                helper=lambda inner: self.sized_helper(inner, n),
                **context,
            )
            del self.helpers[full]
            self.helpers[full] = text
        return full

    def apply(self, op: Op, args: Sequence[Ex], result: Value) -> Ex:
        """The expression of an elementwise operation."""
        wide = any(a.wide for a in args)
        codes = [self.widen(a) if wide else a.code for a in args]
        t, n = result.dtype, self.suffix(wide)
        context: dict[str, object] = dict(zip("abc", codes, strict=False))
        code = render(
            self.kind,
            f"elementwise/{op.name}",
            t=t.name,
            s=args[0].dtype.name,
            n=n,
            T=self.ctype(t, wide),
            S=self.ctype(args[0].dtype, wide),
            signed="int" if t.name == "bool" else _SIGNED[t.size],
            args=codes,
            function=self.function_name(op.attrs.get("function", ""), wide),
            positive=len(args) > 1 and _is_positive(args[1].code),
            helper=lambda name: self.helper(name, wide),
            abi=self.target.abi,
            **context,
        )
        return Ex(f"({code})", t, wide)

    def select(self, mask: Ex, a: Ex, b: Ex) -> Ex:
        """``a`` where the bool ``mask`` holds, else ``b``."""
        return self.apply(_WHERE, [mask, a, b], Value(TileType(a.dtype)))

    def function_name(self, name: str, wide: bool) -> str:
        n = self.suffix(wide)
        return f"ferro_{name}_{n}" if n else f"ferro_{name}"


def bare(code: str) -> str:
    """Without the one pair of parentheses around the whole, if there is one."""
    if not (code.startswith("(") and code.endswith(")")):
        return code
    depth = 0
    for i, c in enumerate(code):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return code[1:-1] if i == len(code) - 1 else code
    return code


def _is_positive(code: str) -> bool:
    """True for a literal in 1..31, which needs no guard as a divisor or a shift count."""
    return code.rstrip("u").isdigit() and int(code.rstrip("u")) > 0


def _float_literal(value: float) -> str:
    if math.isnan(value):
        return "as_float(0x7fc00000)"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(float(np.float32(value)))
    short = str(np.float32(value))
    text = short if np.float32(float(short)) == np.float32(value) else text
    text = text if any(c in text for c in ".e") else text + ".0"
    return f"{text}f" if math.copysign(1, value) > 0 else f"({text}f)"
