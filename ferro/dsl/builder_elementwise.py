"""Builder: operations that act element by element, with implicit broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

from ferro.dsl.builder_core import Operand, describe, plain
from ferro.dsl.builder_shape import Shapes
from ferro.dsl.ir import Value
from ferro.dsl.static import Static
from ferro.dsl.types import ARITHMETIC, DType, TileType, boolean, f32, i32, u32

SYMBOLS = {
    "add": "`+`", "sub": "`-`", "mul": "`*`", "div": "`//`", "mod": "`%`", "and": "`&`",
    "or": "`|`", "xor": "`^`", "shl": "`<<`", "shr": "`>>`", "lt": "`<`", "le": "`<=`",
    "gt": "`>`", "ge": "`>=`", "eq": "`==`", "ne": "`!=`", "neg": "unary `-`", "not": "`~`",
    "min": "`tl.minimum`", "max": "`tl.maximum`",
}  # fmt: skip

_NUMBERS = tuple(ARITHMETIC)
_INTEGERS = (i32, u32)
_ALLOWED: dict[str, tuple[DType, ...]] = {
    **dict.fromkeys(("add", "sub", "mul", "min", "max"), _NUMBERS),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _NUMBERS),
    **dict.fromkeys(("div", "mod", "shl", "shr"), _INTEGERS),
    **dict.fromkeys(("and", "or", "xor", "not"), (boolean, i32, u32)),
    **dict.fromkeys(("rint", "floor", "fma"), (f32,)),
    "neg": _NUMBERS,
    "abs": (f32, i32),
}
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}


class Elementwise(Shapes):
    """Unary, binary and ternary operations, conversions and library calls."""

    def unary(self, name: str, x: Operand) -> Value:
        """neg, abs, not, rint, floor."""
        value = self.value(x)
        self._check_dtype(name, [value])
        return self.emit1(name, [value], value.type)

    def binary(self, name: str, a: Operand, b: Operand) -> Value:
        """Arithmetic, bit operations, shifts and comparisons; f32 `div` is the library's."""
        what = symbol(name)
        pair = self.unify(what, a, b)
        if name == "div" and pair[0].dtype is f32:
            return self.call("div", *pair)
        self._check_dtype(name, pair, (a, b))
        x, y = self.broadcast_all(what, pair)
        return self.emit1(
            name, [x, y], TileType(boolean, x.shape) if name in _COMPARISONS else x.type
        )

    def neg(self, x: Operand) -> Value:
        return self.unary("neg", x)

    def abs(self, x: Operand) -> Value:
        return self.unary("abs", x)

    def not_(self, x: Operand) -> Value:
        return self.unary("not", x)

    def rint(self, x: Operand) -> Value:
        return self.unary("rint", x)

    def floor(self, x: Operand) -> Value:
        return self.unary("floor", x)

    def add(self, a: Operand, b: Operand) -> Value:
        return self.binary("add", a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        return self.binary("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        return self.binary("mul", a, b)

    def div(self, a: Operand, b: Operand) -> Value:
        """Truncating integer division, or the library's `div` of f32."""
        return self.binary("div", a, b)

    def mod(self, a: Operand, b: Operand) -> Value:
        return self.binary("mod", a, b)

    def min(self, a: Operand, b: Operand) -> Value:
        return self.binary("min", a, b)

    def max(self, a: Operand, b: Operand) -> Value:
        return self.binary("max", a, b)

    def and_(self, a: Operand, b: Operand) -> Value:
        return self.binary("and", a, b)

    def or_(self, a: Operand, b: Operand) -> Value:
        return self.binary("or", a, b)

    def xor(self, a: Operand, b: Operand) -> Value:
        return self.binary("xor", a, b)

    def shl(self, a: Operand, b: Operand) -> Value:
        return self.binary("shl", a, b)

    def shr(self, a: Operand, b: Operand) -> Value:
        return self.binary("shr", a, b)

    def lt(self, a: Operand, b: Operand) -> Value:
        return self.binary("lt", a, b)

    def le(self, a: Operand, b: Operand) -> Value:
        return self.binary("le", a, b)

    def gt(self, a: Operand, b: Operand) -> Value:
        return self.binary("gt", a, b)

    def ge(self, a: Operand, b: Operand) -> Value:
        return self.binary("ge", a, b)

    def eq(self, a: Operand, b: Operand) -> Value:
        return self.binary("eq", a, b)

    def ne(self, a: Operand, b: Operand) -> Value:
        return self.binary("ne", a, b)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c of f32 with one rounding."""
        values = self.broadcast_all("`tl.fma`", self.unify("`tl.fma`", a, b, c))
        self._check_dtype("fma", values)
        return self.emit1("fma", values, values[0].type)

    def where(self, cond: Operand, a: Operand, b: Operand) -> Value:
        """``a`` where ``cond`` holds, else ``b``; any dtype."""
        chosen = self.unify("`tl.where`", a, b)
        test = self.mask("the condition of `tl.where`", cond)
        values = self.broadcast_all("`tl.where`", [test, *chosen])
        return self.emit1("where", values, values[1].type)

    def cast(self, x: Operand, dtype: DType) -> Value:
        """Convert: float to int saturates, NaN gives 0, to float rounds to nearest even."""
        value = self.value(x)
        if value.dtype is dtype:
            return value
        if dtype is boolean:
            self.fail(
                "FER204", f"{value.type!r} cannot be cast to bool", help="compare it: `x != 0`"
            )
        return self.emit1("cast", [value], value.type.with_dtype(dtype))

    def bitcast(self, x: Operand, dtype: DType) -> Value:
        """The same bits read as another dtype of the same size."""
        value = self.value(x)
        if value.dtype.size != dtype.size or boolean in (value.dtype, dtype):
            self.fail(
                "FER204",
                f"{value.type!r} cannot be bitcast to {dtype}",
                f"{value.dtype} has {value.dtype.size} bytes, {dtype} has {dtype.size}",
                help="use `.to(...)` to convert the value",
            )
        return (
            value
            if value.dtype is dtype
            else self.emit1("bitcast", [value], value.type.with_dtype(dtype))
        )

    def call(self, function: str, *args: Operand) -> Value:
        """An elementwise function of the language's library over f32 tiles."""
        operands = [o if isinstance(o, Value) else self.const(o, f32) for o in args]
        values = self.broadcast_all(f"`tl.{function}`", operands)
        if any(v.dtype is not f32 for v in values):
            name = "`/`" if function == "div" else f"`tl.{function}`"
            self.fail(
                "FER205",
                f"{name} is defined on f32",
                *describe(args),
                help="cast with `.to(tl.f32)`"
                + (", or divide integers with `//`" if function == "div" else ""),
            )
        return self.emit1("call", values, values[0].type, function=function)

    def clamp(self, x: Operand, lo: Operand, hi: Operand) -> Value:
        """min(max(x, lo), hi); NaN stays NaN."""
        return self.min(self.max(x, lo), hi)

    def cdiv(self, a: Operand, b: Operand) -> Value:
        """a / b rounded up, for a >= 0 and b > 0."""
        less = self.sub(b, 1) if isinstance(b, Value) else _less_one(b)
        return self.div(self.add(a, less), b)

    def mask(self, what: str, cond: Operand) -> Value:
        """``cond`` as a bool tile; CompileError if it is none."""
        value = self.value(cond)
        if value.dtype is not boolean:
            self.fail(
                "FER206",
                f"{what} must be bool",
                f"got: {value.type!r}",
                help="compare it, for example `k < K` or `n != 0`",
            )
        return value

    def _check_dtype(
        self, name: str, values: Sequence[Value], given: Sequence[Operand] = ()
    ) -> None:
        allowed = _ALLOWED[name]
        if all(v.dtype in allowed for v in values):
            return
        names = ", ".join(str(d) for d in allowed)
        storage = values[0].dtype not in (*ARITHMETIC, boolean)
        hint = (
            f"{values[0].dtype} is a storage type: cast with `.to(tl.f32)` or `.to(tl.i32)` first"
            if storage
            else "cast with `.to(...)`, or compare to get a bool"
        )
        self.fail(
            "FER205",
            f"{symbol(name)} is not defined on {values[0].dtype}",
            *(describe(given or values) if len(values) > 1 else [f"operand: {values[0].type!r}"]),
            f"defined on: {names}",
            help=hint,
        )


def _less_one(operand: Static | int | float | bool) -> Static:
    number, _ = plain(operand)
    return Static(int(number) - 1, isinstance(operand, Static) and operand.schedule)


def symbol(name: str) -> str:
    """How the kernel's author writes the operation."""
    return SYMBOLS.get(name, f"`tl.{name}`")
