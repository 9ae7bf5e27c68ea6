"""The lowering: walks the IR and writes C through the templates of a target.

A kept tile is an array of registers, one entry per register index; everything else is an
expression that ``pull`` writes into the loop nest that needs it. The operations with an order of
their own (memory, reductions, products, control flow) are in the ``emit_*`` modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ferro.codegen.affine import Affine, AffineAnalysis, counted
from ferro.codegen.axes import Dimensions
from ferro.codegen.dialect import Dialect, Ex, bare
from ferro.codegen.functions import Functions
from ferro.codegen.inline import VIEWS, Plan
from ferro.codegen.poly import ZERO, Poly
from ferro.codegen.subgroup import broadcast
from ferro.codegen.templates import render
from ferro.codegen.views import view_index
from ferro.codegen.writer import Lines, Mark, Namer, Writer
from ferro.dsl.ir import Block, Kernel, Op, Pointer, Value, walk
from ferro.dsl.types import DType, Span, boolean, i32

Index = tuple[Poly, ...]
UNROLL_LIMIT = 32


@dataclass
class Array:
    """Registers of a kept tile: ``name[i][j]`` over the axes whose register extent is over 1."""

    name: str
    lane: int | None
    registers: tuple[int, ...]
    anchor: Lines


@dataclass(frozen=True)
class Memory:
    """A row-major copy of a tile that any lane can read at any index; bools are 0 and 1 there."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Weights:
    """The C names of a block-quantised weight matrix: its words, scales, minima (4-bit weights
    only) and the number of blocks in a row. ``words_per_block`` words hold 32 values."""

    words: str
    scales: str
    minima: str
    blocks: str

    @property
    def small(self) -> bool:
        return bool(self.minima)

    @property
    def words_per_block(self) -> int:
        return 4 if self.small else 8


@dataclass
class Turn:
    """What one turn of a loop over registers does: it indexes arrays, each lane loads by itself."""

    indexes: bool = False
    gathers: bool = False

    @property
    def unroll_limit(self) -> int:
        """How many turns are unrolled. Arrays thereby become registers. Lanes that load one by one
        are much code already: 16 turns of them took PoCL 3 s and were no faster."""
        return UNROLL_LIMIT if self.indexes or not self.gathers else UNROLL_LIMIT // 8


class Emitter:
    """State of one kernel's generation."""

    def __init__(
        self,
        kernel: Kernel,
        dialect: Dialect,
        dimensions: Dimensions,
        plan: Plan,
        sums: dict[Value, Value],
        functions: Functions,
    ) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.lanes = dialect.lanes
        self.dimensions = dimensions
        self.plan = plan
        self.sums = sums
        self.affine = AffineAnalysis(plan.defs, counted(kernel))
        self.writer = Writer()
        self.names = Namer()
        self.scalars: dict[Value, Ex] = {}
        self.arrays: dict[Value, Array] = {}
        self.memories: dict[Value, Memory] = {}
        self.pointers: dict[str, tuple[str, Pointer]] = {}
        self.extents: dict[str, tuple[Poly, ...]] = {}
        self.weights: dict[str, Weights] = {}
        self.program_ids: tuple[str, ...] = ()
        self.locals: list[str] = []
        self.scratch: dict[DType, str] = {}  # local arrays for values on their way between lanes
        self.borrowed: set[Value] = set()  # values in the array of another one that is still read
        self.shared_buffers = read_and_written(kernel)
        self.functions = functions
        self.before_root = self.writer.current
        self.turn = Turn()
        self._memo: list[dict[object, Ex]] = [{}]

    # -- layout ---------------------------------------------------------------------------

    def lane_of(self, value: Value) -> int | None:
        array = self.arrays.get(value)
        return array.lane if array else self.dimensions.lane_axis(value)

    def registers(self, shape: tuple[int, ...], lane: int | None) -> tuple[int, ...]:
        return tuple(n // self.lanes if i == lane else n for i, n in enumerate(shape))

    # -- writing --------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.writer.line(text)

    def template(self, name: str, /, **context: object) -> str:
        return render(self.dialect.kind, name, lanes=self.lanes, **context)

    def mark(self, span: Span) -> None:
        """Point the compiler's messages about the next lines at the DSL."""
        if span.line:
            file = span.file.replace("\\", "/").replace('"', "'")
            self.writer.mark = Mark(span.line, file)

    @contextmanager
    def scope(self, head: str) -> Iterator[None]:
        with self.writer.block(head):
            self._memo.append({})
            try:
                yield
            finally:
                self._memo.pop()

    @contextmanager
    def at(self, lines: Lines) -> Iterator[None]:
        """Write at an earlier place; nothing pulled later than it is in reach there."""
        with self.writer.at(lines):
            saved, self._memo = self._memo, [{}]
            try:
                yield
            finally:
                self._memo = saved

    def nest(
        self, registers: tuple[int, ...], body: Callable[[Index], None], unroll: bool | None = None
    ) -> None:
        """Loops over a register index; ``body`` writes the innermost statements.

        Short loops are unrolled, where ``unroll`` does not say whether.
        """
        total = math.prod(registers)
        index: list[Poly] = []
        heads: list[Lines] = []
        outer, self.turn = self.turn, Turn()

        def level(axis: int) -> None:
            if axis == len(registers):
                body(tuple(index))
            elif registers[axis] == 1:
                index.append(ZERO)
                level(axis + 1)
                index.pop()
            else:
                var = self.names.fresh("i")
                index.append(Poly.of(var))
                head = f"for (int {var} = 0; {var} < {registers[axis]}; ++{var})"
                heads.append(self.writer.anchor())
                with self.scope(head):
                    level(axis + 1)
                index.pop()

        if total == 1:
            with self.scope(""):
                level(0)
        else:
            level(0)
        if unroll or (unroll is None and total <= self.turn.unroll_limit):
            for lines in heads:
                with self.writer.at(lines):
                    self.line("UNROLL")
        outer.indexes |= self.turn.indexes
        outer.gathers |= self.turn.gathers
        self.turn = outer

    # -- values ---------------------------------------------------------------------------

    def declare(self, value: Value, lane: int | None, wanted: str = "") -> Array:
        """A new array for ``value``; lines that copy it can be added behind its anchor."""
        registers = self.registers(value.shape, lane)
        name = self.names.fresh(wanted or value.name or "t")
        dims = "".join(f"[{n}]" for n in registers if n > 1)
        self.line(f"{self.dialect.register_type(value.dtype, lane is not None)} {name}{dims};")
        return Array(name, lane, registers, Lines())

    def keep(self, value: Value, array: Array) -> None:
        """Make ``array``, filled by now, the home of ``value``."""
        array.anchor = self.writer.anchor()
        self.arrays[value] = array
        self.memories.pop(value, None)

    def element(self, array: Array, index: Index) -> str:
        used = [i for i, n in zip(index, array.registers, strict=True) if n > 1]
        self.turn.indexes |= bool(used)
        return array.name + "".join(f"[{i}]" for i in used)

    def in_place(self, result: Value, old: Value) -> Array:
        """An array for ``result`` that holds ``old``: its own one if it is read only here."""
        array = self.arrays.get(old)
        if array is not None and self.plan.read_once(old) and old not in self.borrowed:
            return Array(array.name, array.lane, array.registers, Lines())
        array = self.declare(result, self.lane_of(result))
        self.fill(array, old)
        return array

    def fill(self, array: Array, value: Value) -> None:
        """Compute ``value`` into ``array``."""

        def body(index: Index) -> None:
            ex = self.pull(value, index, array.lane)
            code = self.dialect.widen(ex) if array.lane is not None else ex.code
            target = self.element(array, index)
            if target != code:
                self.line(f"{target} = {code};")

        self.nest(array.registers, body)

    def materialise(self, value: Value) -> None:
        """Give ``value`` an array at the current place, in its own layout."""
        array = self.declare(value, self.lane_of(value))
        self.fill(array, value)
        self.keep(value, array)

    def scalar(self, value: Value) -> Ex:
        """The C expression of a rank-0 value."""
        known = self.scalars.get(value)
        if known is not None:
            return known
        affine = self.affine.of(value)
        if affine is not None:
            return Ex(affine.base.c, i32)
        op = self.plan.defs[value]
        if op.name == "const":
            return Ex(self.dialect.literal(op.attrs["value"], value.dtype), value.dtype)
        return self.pull(value, (), None)

    def bind_scalar(self, value: Value, ex: Ex) -> Ex:
        """Give a computed scalar a C variable in the current scope."""
        name = self.names.fresh(value.name or "s")
        self.line(f"const {self.dialect.ctype(value.dtype)} {name} = {ex.code};")
        return self.name_scalar(value, name)

    def name_scalar(self, value: Value, name: str) -> Ex:
        self.scalars[value] = Ex(name, value.dtype)
        if value.dtype == i32:
            self.affine.name(value, name)
        return self.scalars[value]

    def pull(self, value: Value, index: Index, lane: int | None) -> Ex:
        """The expression of one register of ``value`` with axis ``lane`` on the lanes."""
        if not value.shape:
            return self._pull_scalar(value)
        if lane is not None and value.shape[lane] == 1:
            lane = None
        if value in self.arrays:
            return self._pull_array(value, index, lane)
        key = (value, index, lane)
        for known in reversed(self._memo):
            if key in known:
                return known[key]
        ex = self._compute(value, index, lane)
        if not _is_atom(ex.code):
            ex = self.temporary(ex, value.name)
        self._memo[-1][key] = ex
        return ex

    def _pull_scalar(self, value: Value) -> Ex:
        if value in self.scalars or self.affine.of(value) is not None:
            return self.scalar(value)
        op = self.plan.defs[value]
        if op.name == "const":
            return self.scalar(value)
        if op.name in VIEWS:
            source = view_index(op, value, (), None, self.lanes)
            assert source is not None, "a scalar has no lanes to move"
            return self.pull(*source)
        key = (value, (), None)
        for known in reversed(self._memo):
            if key in known:
                return known[key]
        ex = self.temporary(self._compute(value, (), None), value.name)
        self._memo[-1][key] = ex
        return ex

    def temporary(self, ex: Ex, wanted: str = "") -> Ex:
        name = self.names.fresh(wanted or "t")
        self.line(f"const {self.dialect.ctype(ex.dtype, ex.wide)} {name} = {bare(ex.code)};")
        return Ex(name, ex.dtype, ex.wide)

    def _pull_array(self, value: Value, index: Index, lane: int | None) -> Ex:
        array = self.arrays[value]
        if array.lane == lane:
            code, wide = self.element(array, index), lane is not None
            ctype = self.dialect.ctype(value.dtype, wide)
            if ctype != self.dialect.register_type(value.dtype, wide):
                code = f"(({ctype}){code})"
            return Ex(code, value.dtype, wide)
        shared = broadcast(self, value, array, index) if lane is None else None
        return shared or self.read_memory(value, index, lane)

    def _compute(self, value: Value, index: Index, lane: int | None) -> Ex:
        affine = self.affine.of(value)
        if affine is not None:
            return self.affine_value(affine, index, lane)
        op = self.plan.defs[value]
        if op.name in VIEWS:
            source = view_index(op, value, index, lane, self.lanes)
            if source is None:
                return self.read_memory(value, index, lane)
            return self.pull(*source)
        special = PULLS.get(op.name)
        if special is not None:
            return special(self, op, value, index, lane)
        args = [self.pull(a, index, lane) for a in op.args]
        return self.dialect.apply(op, args, value)

    def offset(self, affine: Affine, index: Index, lane: int | None) -> Poly:
        """The affine form at lane 0 of a register index."""
        out = affine.base
        for axis, (stride, i) in enumerate(zip(affine.strides, index, strict=True)):
            out = out + stride * i * (self.lanes if axis == lane else 1)
        return out

    def affine_value(self, affine: Affine, index: Index, lane: int | None) -> Ex:
        base = self.offset(affine, index, lane)
        if lane is None or affine.strides[lane].is_zero():
            return Ex(base.c, i32)
        return Ex(self.iota(base, affine.strides[lane]), i32, True)

    def iota(self, base: Poly, stride: Poly) -> str:
        if self.dialect.kind == "simt" and (base.wraps or stride.wraps):
            return (base + stride * "lane").c
        return self.template("iota", base=base.c, stride=stride.c, one=stride.constant == 1)

    # -- memory tiles ---------------------------------------------------------------------

    def memory(self, value: Value) -> Memory:
        """A copy of ``value`` in row-major order, made right after ``value`` was computed."""
        if value in self.memories:
            return self.memories[value]
        if value not in self.arrays:
            with self.at(self.before_root):
                self.materialise(value)
        array = self.arrays[value]
        if array.lane is None:
            name = array.name if sum(n > 1 for n in array.registers) < 2 else None
            base = name or "(&" + array.name + "[0]" * sum(n > 1 for n in array.registers) + ")"
            base = f"(&{array.name})" if all(n == 1 for n in array.registers) else base
            memory = Memory(base, value.shape, value.dtype)
        else:
            memory = self._copy_to_memory(value, array)
        self.memories[value] = memory
        return memory

    def _copy_to_memory(self, value: Value, array: Array) -> Memory:
        name = self.names.fresh(f"{array.name}_tile")
        memory = Memory(name, value.shape, value.dtype)
        ctype = self.dialect.ctype(value.dtype)
        declaration = self.template("tile", ctype=ctype, name=name, size=value.type.size)
        if self.dialect.kind == "simt":
            self.locals.append(declaration)
        with self.at(array.anchor):
            if self.dialect.kind == "simd":
                self.line(declaration)
            self.sync()

            def body(index: Index) -> None:
                strides = row_major(value.shape)
                at = self.offset(Affine(ZERO, strides), index, array.lane)
                assert array.lane is not None
                self.line(
                    self.template(
                        "tile_store",
                        name=name,
                        at=at.c,
                        stride=strides[array.lane].constant,
                        value=self.element(array, index),
                        flag=value.dtype == boolean,
                        ctype=ctype,
                    )
                )

            self.nest(array.registers, body)
            self.sync()
        return memory

    def sync(self) -> None:
        """A barrier where lanes are work-items."""
        self.line(self.template("sync"))

    def read_memory(self, value: Value, index: Index, lane: int | None) -> Ex:
        """One register of ``value`` through a memory copy of it (or of what it is a view of)."""
        source, strides, base = self._memory_view(value)
        memory = self.memory(source)
        at = self.offset(Affine(base, strides), index, lane)
        self.turn.indexes = True
        if lane is None:
            return Ex(f"{memory.name}[{at}]", value.dtype)
        code = self.template(
            "tile_load",
            name=memory.name,
            at=at.c,
            stride=strides[lane].c,
            one=strides[lane].constant == 1,
            flag=value.dtype == boolean,
            T=self.dialect.ctype(value.dtype, True),
        )
        return Ex(code, value.dtype, True)

    def _memory_view(self, value: Value) -> tuple[Value, tuple[Poly, ...], Poly]:
        """The tile whose copy holds ``value``, and where each of its axes moves in it."""
        op = self.plan.defs.get(value)
        if value in self.arrays or op is None or op.name not in VIEWS:
            return value, row_major(value.shape), ZERO
        if op.name == "split":
            shape = op.args[0].shape
            strides = list(row_major(shape))
            axis, which = op.attrs["axis"], op.results.index(value)
            pairs = op.attrs["how"] == "pairs"
            start = strides[axis] * (which if pairs else which * (shape[axis] // 2))
            strides[axis] = strides[axis] * (2 if pairs else 1)
            return op.args[0], tuple(strides), start
        return op.args[0], row_major(value.shape), ZERO

    # -- blocks ---------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Write the operations of a block in order."""
        for op in block.ops:
            self.mark(op.span)
            saved, self.before_root = self.before_root, self.writer.anchor()
            self._emit(op)
            self.before_root = saved

    def _emit(self, op: Op) -> None:
        emit = EMITS.get(op.name)
        if emit is not None:
            emit(self, op)
            return
        for result in op.results:
            if result not in self.plan.used:
                continue
            if not result.shape:
                self._emit_scalar(op, result)
            elif result in self.plan.kept:
                self.materialise(result)

    def _emit_scalar(self, op: Op, result: Value) -> None:
        if op.name in ("const", *VIEWS) or result in self.scalars:
            return
        if self.affine.of(result) is None:
            self.bind_scalar(result, self._compute(result, (), None))


def read_and_written(kernel: Kernel) -> frozenset[str]:
    """Buffers whose loads and stores must be ordered between the lanes of a program."""
    touched: dict[str, set[str]] = {"load": set(), "store": set()}
    for op in walk(kernel.body):
        if op.name in touched:
            touched[op.name].add(op.attrs["buffer"])
    return frozenset(touched["load"] & touched["store"])


def row_major(shape: tuple[int, ...]) -> tuple[Poly, ...]:
    strides: list[Poly] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, Poly.of(step))
        step *= n
    return tuple(strides)


def _is_atom(code: str) -> bool:
    return len(code) < 12 and code.replace("_", "").replace(".", "").isalnum()


# Filled by the emit_* modules: operations with statements, expressions with a rule of their own.
EMITS: dict[str, Callable[[Emitter, Op], None]] = {}
PULLS: dict[str, Callable[[Emitter, Op, Value, Index, int | None], Ex]] = {}
