"""The functions of ``tl`` inside of a kernel: arguments checked, then handed to the builder."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ferro.dsl.context import Context
from ferro.dsl.diagnostics import did_you_mean
from ferro.dsl.grid import extent_of
from ferro.dsl.ir import Pointer, Quantised, Value
from ferro.dsl.language import LIBRARY, Builtin
from ferro.dsl.objects import Chunk, Element, Object, kind
from ferro.dsl.static import Static, fold
from ferro.dsl.types import f32


class Intrinsics:
    """One method for each function of the language, named alike."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._builder = context.builder

    def call(self, function: Builtin, args: list[Object], keywords: dict[str, Object]) -> Object:
        """Call a builtin. Raises CompileError if the arguments do not fit."""
        if function.name in LIBRARY:
            handler: Callable[..., Object] = self._library(function.name)
        else:
            handler = getattr(self, function.name)
        return self._invoke(handler, function.signature, args, keywords)

    def method(
        self, name: str, base: Object, args: list[Object], keywords: dict[str, Object]
    ) -> Object:
        """Call a method of a tile, such as ``x.to(dtype)``."""
        signature, handler = _METHODS[name]
        return self._invoke(getattr(self, handler), signature, [base, *args], keywords)

    def _invoke(
        self,
        handler: Callable[..., Object],
        signature: str,
        args: list[Object],
        keywords: dict[str, Object],
    ) -> Object:
        shape = inspect.signature(handler)
        try:
            shape.bind(*args, **keywords)
        except TypeError as error:
            wrong = [k for k in keywords if k not in shape.parameters]
            help = did_you_mean(wrong[0], shape.parameters) if wrong else ""
            self._context.fail(
                "FER126", f"wrong arguments: {error}", help=help or f"the call is `{signature}`"
            )
        return handler(*args, **keywords)

    def _library(self, name: str) -> Callable[..., Object]:
        operand = self._context.operand
        if name == "div":
            return lambda a, b: self._builder.call(name, operand(a), operand(b))
        return lambda x: self._builder.call(name, operand(x))

    # sources

    def program_id(self, axis: Object, count: Object) -> Value:
        context = self._context
        number = context.integer(axis, "the axis of `tl.program_id`")
        if number not in (0, 1, 2):
            context.fail("FER130", f"programs have no axis {number}", help="axes are 0, 1 and 2")
        extent = extent_of(context, context.operand(count))
        known = context.grid.setdefault(number, extent)
        if known != extent:
            context.fail(
                "FER131",
                f"axis {number} is given two counts of programs",
                help="use one count for each axis",
            )
        return self._builder.program_id(number)

    def block(self, axis: Object, extent: Object, size: Object) -> Value:
        width = self._context.static_int(size, "the size of a block")
        if int(width.value) < 1:
            self._context.fail("FER210", "a block is empty", help="its size must be positive")
        first = self.program_id(axis, self.cdiv(extent, width))
        tile = self._builder.arange(0, width)
        return self._builder.add(self._builder.mul(first, width), tile)

    def arange(self, start: Object, stop: Object) -> Value:
        first = self._context.static_int(start, "the start of `tl.arange`")
        return self._builder.arange(
            first, self._context.static_int(stop, "the stop of `tl.arange`")
        )

    def zeros(self, shape: Object, dtype: Object = f32) -> Value:
        return self._builder.zeros(self._context.shape(shape), self._context.dtype(dtype))

    def full(self, shape: Object, value: Object, dtype: Object = None) -> Value:
        wanted = None if dtype is None else self._context.dtype(dtype)
        return self._builder.full(self._context.shape(shape), self._context.operand(value), wanted)

    # shapes

    def reshape(self, x: Object, *shape: Object) -> Value:
        extents = shape[0] if len(shape) == 1 else shape
        return self._builder.reshape(self._tile(x), self._context.shape(extents))

    def broadcast_to(self, x: Object, shape: Object) -> Value:
        return self._builder.broadcast_to(self._tile(x), self._context.shape(shape))

    def trans(self, x: Object) -> Value:
        return self._builder.transpose(self._tile(x))

    def permute(self, x: Object, *axes: Object) -> Value:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes
        perm = [self._context.integer(a, "an axis") for a in order]
        return self._builder.transpose(self._tile(x), perm)

    def split(
        self, x: Object, axis: Object = Static(-1), how: Object = Static("halves")
    ) -> tuple[Value, Value]:
        way = self._context.text(how, "`how`")
        return self._builder.split(self._tile(x), self._axis(axis), way)

    def join(
        self, a: Object, b: Object, axis: Object = Static(-1), how: Object = Static("halves")
    ) -> Value:
        way = self._context.text(how, "`how`")
        return self._builder.join(self._tile(a), self._tile(b), self._axis(axis), way)

    # memory

    def load(self, element: Object, mask: Object = None, other: Object = None) -> Value:
        place = self._element(element, "tl.load")
        index = [self._context.operand(i) for i in place.index]
        maybe = self._context.maybe
        return self._builder.load(place.buffer, index, maybe(mask), maybe(other))

    def store(self, element: Object, value: Object, mask: Object = None) -> None:
        place = self._element(element, "tl.store")
        operand = self._context.operand
        index = [operand(i) for i in place.index]
        self._builder.store(place.buffer, index, operand(value), self._context.maybe(mask))

    def load_block(
        self, w: Object, rows: Object, block: Object, mask: Object = None
    ) -> tuple[Value, ...]:
        context = self._context
        buffer = context.buffer(w, "`tl.load_block`")
        return self._builder.load_block(
            buffer, context.operand(rows), context.operand(block), context.maybe(mask)
        )

    def store_block(
        self,
        y: Object,
        rows: Object,
        block: Object,
        q: Object,
        scale: Object,
        mask: Object = None,
    ) -> None:
        context = self._context
        self._builder.store_block(
            context.buffer(y, "`tl.store_block`"),
            context.operand(rows),
            context.operand(block),
            self._tile(q),
            self._tile(scale),
            context.maybe(mask),
        )

    # elementwise

    def fma(self, a: Object, b: Object, c: Object) -> Value:
        operand = self._context.operand
        return self._builder.fma(operand(a), operand(b), operand(c))

    def minimum(self, a: Object, b: Object) -> Object:
        return self._fold_or("min", a, b)

    def maximum(self, a: Object, b: Object) -> Object:
        return self._fold_or("max", a, b)

    def add(self, a: Object, b: Object) -> Object:
        return self._fold_or("add", a, b)

    def scalar_min(self, *values: Object) -> Object:
        return self._of_scalars("min", values)

    def scalar_max(self, *values: Object) -> Object:
        return self._of_scalars("max", values)

    def abs(self, x: Object) -> Object:
        if isinstance(x, Static) and x.is_int:
            return Static(abs(int(x.value)), x.schedule)
        return self._builder.abs(self._context.operand(x))

    def rint(self, x: Object) -> Value:
        return self._builder.rint(self._context.operand(x))

    def floor(self, x: Object) -> Value:
        return self._builder.floor(self._context.operand(x))

    def clamp(self, x: Object, lo: Object, hi: Object) -> Value:
        operand = self._context.operand
        return self._builder.clamp(operand(x), operand(lo), operand(hi))

    def where(self, cond: Object, a: Object, b: Object) -> Value:
        operand = self._context.operand
        return self._builder.where(operand(cond), operand(a), operand(b))

    def to(self, x: Object, dtype: Object) -> Value:
        return self._builder.cast(self._context.operand(x), self._context.dtype(dtype))

    def bitcast(self, x: Object, dtype: Object) -> Value:
        return self._builder.bitcast(self._context.operand(x), self._context.dtype(dtype))

    def cdiv(self, a: Object, b: Object) -> Object:
        if isinstance(a, Static) and isinstance(b, Static):
            context = self._context
            n, size = context.static_int(a, "a dividend"), context.static_int(b, "a divisor")
            if int(size.value) < 1:
                context.fail(
                    "FER122", f"`tl.cdiv` by {size!r}", help="the divisor must be positive"
                )
            return fold("cdiv", n, size)
        return self._builder.cdiv(self._context.operand(a), self._context.operand(b))

    # across elements

    def sum(self, x: Object, axis: Object = Static(-1), mask: Object = None) -> Value:
        return self._reduce("sum", x, axis, mask)

    def max(self, x: Object, axis: Object = Static(-1), mask: Object = None) -> Value:
        return self._reduce("max", x, axis, mask)

    def min(self, x: Object, axis: Object = Static(-1), mask: Object = None) -> Value:
        return self._reduce("min", x, axis, mask)

    def argmax(self, x: Object, axis: Object = Static(-1), mask: Object = None) -> Value:
        return self._reduce("argmax", x, axis, mask)

    def partials(self, prefix: Object = ()) -> Value:
        return self._builder.partials(self._context.shape(prefix))

    def accumulate(
        self, state: Object, x: Object, axis: Object = Static(-1), mask: Object = None
    ) -> Value:
        maybe = self._context.maybe(mask)
        return self._builder.accumulate(self._tile(state), self._tile(x), self._axis(axis), maybe)

    def finish(self, state: Object) -> Value:
        return self._builder.finish(self._tile(state))

    def dot_i8(self, a: Object, b: Object) -> Value:
        return self._builder.dot_i8(self._tile(a), self._tile(b))

    def dot(self, a: Object, b: Object, acc: Object = None) -> Value:
        carried = None if acc is None else self._tile(acc)
        return self._builder.dot(self._tile(a), self._tile(b), carried)

    def quantize_i8(self, x: Object) -> tuple[Value, Value]:
        return self._builder.quantize_i8(self._tile(x))

    # control

    def static_assert(self, condition: Object, message: Object = Static("")) -> None:
        context = self._context
        text = context.text(message, "the message")
        if not isinstance(condition, Static) or not isinstance(condition.value, bool):
            context.fail(
                "FER114",
                "the condition of `tl.static_assert` must be known at compile time",
                f"got {kind(condition)}",
                help="use constexprs only",
            )
        if not condition.value:
            context.fail(
                "FER132",
                f"static assertion failed: {text}".rstrip(": "),
                help="choose other constexprs",
            )

    def breakpoint(self) -> None:
        values: dict[str, Value] = {}
        constants: dict[str, int | float | bool | str] = {}
        buffers: dict[str, str] = {}
        for name, thing in self._context.variables.items():
            match thing:
                case Value():
                    values[name] = thing
                case Chunk():
                    values[f"{name}.start"], values[f"{name}.stop"] = thing.start, thing.stop
                case Static():
                    constants[name] = thing.value
                case Pointer() | Quantised():
                    buffers[name] = thing.name
        within = self._context.frame.definition.name
        self._builder.breakpoint(list(values.values()), list(values), constants, buffers, within)

    def range(self, *bounds: Object, **_: Object) -> None:
        self._misplaced("range", "for i in range(start, stop, step):")

    def chunks(self, n: Object, size: Object) -> None:
        self._misplaced("tl.chunks", "for c in tl.chunks(n, size):")

    def static_range(self, *bounds: Object) -> None:
        self._misplaced("tl.static_range", "for i in tl.static_range(n):")

    def combine(self, *values: Object, **_: Object) -> None:
        self._misplaced(
            "tl.combine",
            "as the last statement of a `tl.chunks` loop: total = tl.combine(tl.add, value)",
        )

    # arguments

    def _misplaced(self, name: str, place: str) -> None:
        self._context.fail(
            "FER133",
            f"`{name}` has no meaning here",
            help=f"write `{place}`" if place.startswith("for") else place,
        )

    def _reduce(self, name: str, x: Object, axis: Object, mask: Object) -> Value:
        return self._builder.reduce(
            name, self._tile(x), self._axis(axis), self._context.maybe(mask)
        )

    def _tile(self, x: Object) -> Value:
        return self._context.value(x)

    def _axis(self, axis: Object) -> int:
        return self._context.integer(axis, "an axis")

    def _element(self, thing: Object, what: str) -> Element:
        if isinstance(thing, Element):
            return thing
        self._context.fail(
            "FER301",
            f"`{what}` takes an indexed buffer",
            f"got {kind(thing)}",
            help=f"write `{what}(p[index, ...])`",
        )

    def _fold_or(self, name: str, a: Object, b: Object) -> Object:
        if isinstance(a, Static) and isinstance(b, Static) and a.is_int and b.is_int:
            return fold(name, a, b)
        return self._builder.binary(name, self._context.operand(a), self._context.operand(b))

    def _of_scalars(self, name: str, values: tuple[Object, ...]) -> Object:
        if len(values) < 2:
            self._context.fail(
                "FER126",
                f"`{name}` needs at least two scalars",
                help=f"reduce a tile with `tl.{name}(x, axis=...)`",
            )
        result = values[0]
        for value in values[1:]:
            result = self._fold_or(name, result, value)
        if isinstance(result, Value) and result.type.rank:
            self._context.fail(
                "FER123",
                f"`{name}` works on scalars",
                f"got {kind(result)}",
                help=f"use `tl.{name}imum(a, b)` element by element",
            )
        return result


_METHODS: dict[str, tuple[str, str]] = {
    "to": ("x.to(dtype)", "to"),
    "bitcast": ("x.bitcast(dtype)", "bitcast"),
    "reshape": ("x.reshape(shape)", "reshape"),
}


def method_names() -> list[str]:
    """What can be called on a tile."""
    return list(_METHODS)


def handled(name: str) -> bool:
    """True if the language gives the builtin a meaning."""
    return name in LIBRARY or hasattr(Intrinsics, name)
