"""The builder's ground: blocks in progress, equal pure operations made one, literals typed.

Nothing here knows an operation. The type rules sit in the other ``builder_*`` modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ferro.dsl import limits
from ferro.dsl.diagnostics import fail
from ferro.dsl.ir import Block, Op, Value
from ferro.dsl.static import Constant, Static
from ferro.dsl.types import NOWHERE, DType, Span, TileType, boolean, f32, i32

Literal = int | float | bool

# What an operand may be: a value, or a literal that takes the dtype of its neighbour.
Operand = Value | Static | Literal

_IMPURE = {"load", "store", "load_block", "store_block", "breakpoint", "for", "if", "walk"}


@dataclass
class Scope:
    """A block being filled and the pure operations already made in it."""

    block: Block
    known: dict[tuple[Any, ...], Op] = field(default_factory=dict)


class Core:
    """Emits operations into the current block. ``span`` is given to each of them."""

    def __init__(self, block: Block | None = None) -> None:
        self.span: Span = NOWHERE
        self.label = ""
        self.definitions: dict[int, Op] = {}
        self._scopes = [Scope(block if block is not None else Block())]

    @property
    def block(self) -> Block:
        """The block that operations are appended to."""
        return self._scopes[-1].block

    @contextmanager
    def inside(self, block: Block) -> Iterator[Block]:
        """Append to ``block`` until the end of the ``with`` statement."""
        if len(self._scopes) > limits.NESTING:
            self.fail(
                "FER233",
                f"loops and branches nest more than {limits.NESTING} deep",
                help="merge some of them, or let programs share the work of the outer ones",
            )
        self._scopes.append(Scope(block))
        try:
            yield block
        finally:
            self._scopes.pop()

    def emit(
        self,
        name: str,
        args: Sequence[Value],
        types: Sequence[TileType],
        blocks: Sequence[Block] = (),
        /,
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Append an operation unchecked, or return the equal pure one that is in reach."""
        for type in types:
            self._check_size(type)
        key = (name, tuple(a.id for a in args), tuple(types), _freeze(attrs))
        if name not in _IMPURE:
            for scope in reversed(self._scopes):
                if key in scope.known:
                    return scope.known[key].results
        results = tuple(Value(t) for t in types)
        op = Op(name, tuple(args), results, attrs, tuple(blocks), self.span)
        self.block.ops.append(op)
        self.definitions.update((r.id, op) for r in results)
        if name not in _IMPURE:
            self._scopes[-1].known[key] = op
        return results

    def _check_size(self, type: TileType) -> None:
        if type.size > limits.TILE:
            self.fail(
                "FER230",
                f"a tile of {type.size} elements",
                f"the tile would be {type!r}",
                help=f"a tile holds at most {limits.TILE} elements: "
                "let more programs, or a loop, share the work",
            )
        if type.rank > limits.RANK:
            self.fail(
                "FER231",
                f"a tile of {type.rank} axes",
                help=f"a tile has at most {limits.RANK}: merge some with `tl.reshape`",
            )

    def emit1(self, name: str, args: Sequence[Value], type: TileType, /, **attrs: Any) -> Value:
        """``emit`` of an operation with one result."""
        return self.emit(name, args, [type], (), **attrs)[0]

    def fail(self, code: str, message: str, *notes: str, help: str = "") -> NoReturn:
        """Raise a CompileError at the current span."""
        fail(code, self.span, message, help, notes)

    def const(self, literal: Static | Literal, dtype: DType) -> Value:
        """A scalar constant; raises CompileError if ``dtype`` cannot hold it."""
        value, mark = plain(literal)
        if isinstance(value, str):
            self.fail("FER202", f"the string {value!r} cannot become {dtype}", help=_STRING_HELP)
        return self.emit1("const", [], TileType(dtype), value=self._fit(value, dtype), **mark)

    def value(self, operand: Operand, dtype: DType | None = None) -> Value:
        """``operand`` as a value: a literal becomes a constant of ``dtype`` or its natural one."""
        if isinstance(operand, Value):
            return operand
        return self.const(operand, dtype or natural_dtype(operand))

    def unify(self, what: str, *operands: Operand) -> tuple[Value, ...]:
        """Operands of one dtype: literals adapt to the tiles, tiles never convert."""
        tiles = [o for o in operands if isinstance(o, Value)]
        dtypes = {t.dtype for t in tiles} or {_common_literal(operands)}
        if len(dtypes) > 1:
            self.fail(
                "FER201",
                f"operands of {what} have different dtypes",
                *describe(operands),
                help="there is no implicit conversion: cast one side with `.to(...)`",
            )
        dtype = dtypes.pop()
        return tuple(self.value(o, dtype) for o in operands)

    def _fit(self, value: int | float | bool, dtype: DType) -> int | float | bool:
        if dtype is boolean or isinstance(value, (bool, np.bool_)):
            if dtype is boolean and isinstance(value, (bool, np.bool_)):
                return bool(value)
            self.fail("FER202", f"the literal {value!r} cannot become {dtype}", help=_BOOL_HELP)
        if dtype.is_float:
            return self._fit_float(value, dtype)
        if isinstance(value, float):
            self.fail(
                "FER202",
                f"the literal {value!r} cannot become {dtype}",
                help="convert the tile with `.to(tl.f32)`, or write an integer",
            )
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= value <= limits.max:
            self.fail(
                "FER203",
                f"{value} does not fit in {dtype}",
                f"{dtype} holds {limits.min} to {limits.max}",
                help="use a wider dtype, such as `tl.u32(...)`",
            )
        return int(value)

    def _fit_float(self, value: int | float, dtype: DType) -> float:
        with np.errstate(over="ignore"):
            rounded = float(dtype.numpy.type(value))
        if isinstance(value, int) and rounded != value:
            self.fail(
                "FER203",
                f"the integer {value} is not exact in {dtype}",
                help="write it with a decimal point to round it to the nearest value",
            )
        return rounded


_STRING_HELP = "strings live at compile time only: compare them with `==`"
_BOOL_HELP = "bool and numbers do not mix: compare (`x != 0`) or use `tl.where(cond, 1, 0)`"


def plain(literal: Static | Literal) -> tuple[Constant, dict[str, bool]]:
    """A literal's Python value, and the attribute that marks it as schedule derived."""
    if not isinstance(literal, Static):
        return literal, {}
    return literal.value, {"schedule": True} if literal.schedule else {}


def natural_dtype(literal: Static | Literal) -> DType:
    """The dtype of a literal that stands alone."""
    value, _ = plain(literal)
    if isinstance(value, bool):
        return boolean
    return f32 if isinstance(value, float) else i32


def describe(operands: Sequence[Operand]) -> list[str]:
    """Notes that give the type of each operand, with its DSL name where it has one."""
    sides = ["left", "right"] if len(operands) == 2 else [f"#{n + 1}" for n in range(len(operands))]
    return [f"{side}: {_type_name(o)}" for side, o in zip(sides, operands, strict=True)]


def _type_name(operand: Operand) -> str:
    if not isinstance(operand, Value):
        return f"literal {operand!r}"
    return f"{operand.type!r} ({operand.name})" if operand.name else repr(operand.type)


def _common_literal(operands: Sequence[Operand]) -> DType:
    kinds = {natural_dtype(o) for o in operands if not isinstance(o, Value)}
    return f32 if f32 in kinds and boolean not in kinds else min(kinds, key=lambda d: d.name)


def _freeze(attrs: dict[str, Any]) -> tuple[Any, ...]:
    # float.hex tells -0.0 from 0.0 and makes NaN equal to itself
    return tuple(
        (k, v.hex() if isinstance(v, float) else (type(v).__name__, _hashable(v)))
        for k, v in sorted(attrs.items())
    )


def _hashable(value: Any) -> Any:
    return tuple(_hashable(v) for v in value) if isinstance(value, (list, tuple)) else value
