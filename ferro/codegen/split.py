"""Pass: one program's ordered walk shared between several work-groups.

The kernel becomes two. The first computes chunks, each work-group a range of them, and stores
every chunk's values; the second reads them back in ascending order, combines them by the kernel's
rule and does the rest. Nothing is combined out of order, so the bits are those of one program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ferro.codegen.errors import ConfigError
from ferro.codegen.ops import Ops
from ferro.dsl.ir import Block, Buffer, Extent, Kernel, Op, Pointer, Value, walk
from ferro.dsl.types import TileType, boolean, i32

_EFFECTS = frozenset({"store", "store_block"})


@dataclass(frozen=True)
class Split:
    """``chunks`` and ``combine`` run one after the other; ``scratch`` lives between them."""

    chunks: Kernel
    combine: Kernel
    scratch: tuple[Pointer, ...]


def split_walk(kernel: Kernel, groups: int) -> Split:
    """Share the first walk of ``kernel`` between ``groups`` work-groups a program.

    Raises ConfigError if there is no walk outside of loops and branches, if something is stored
    before or inside of it, or if its length has no bound in the kernel's dimensions.
    """
    place = next((i for i, op in enumerate(kernel.body.ops) if op.name == "walk"), None)
    if place is None:
        raise ConfigError(f"split={groups}: {kernel.name} has no tl.chunks loop to split")
    before, found, after = (
        kernel.body.ops[:place],
        kernel.body.ops[place],
        kernel.body.ops[place + 1 :],
    )
    if any(op.name in _EFFECTS for op in walk(Block(ops=[*before, found]))):
        raise ConfigError(f"split={groups}: {kernel.name} stores before its chunks are combined")
    maker = _Split(kernel, before, found, groups)
    return Split(maker.chunks(), maker.combine(after), maker.scratch)


class _Split:
    def __init__(self, kernel: Kernel, before: list[Op], found: Op, groups: int) -> None:
        self.kernel = kernel
        self.before = before
        self.walk = found
        self.groups = groups
        self.size: int = found.attrs["size"]
        self.scalars = {s.name: s.value for s in kernel.scalars}
        defs = {r: op for op in before for r in op.results}
        longest = Bounds(kernel, defs).upper(found.args[0])
        if longest is None:
            raise ConfigError(
                f"split={groups}: the length of {kernel.name}'s chunks has no bound; "
                "clamp it to a dimension"
            )
        self.values = found.blocks[0].results
        programs: Extent = ("const", 1)
        for extent in kernel.grid:
            programs = ("*", programs, extent)
        rows = ("cdiv", ("max", longest, ("const", 0)), ("const", self.size))
        self.scratch = tuple(
            Pointer(
                f"chunk_{i}_{value.name or 'value'}",
                i32 if value.dtype == boolean else value.dtype,
                (programs, rows, *(("const", n) for n in value.shape)),
                "inout",
            )
            for i, value in enumerate(self.values)
        )

    def buffers(self) -> tuple[Buffer, ...]:
        return (*self.kernel.buffers, *self.scratch)

    def chunks(self) -> Kernel:
        make = Ops(self.walk.span, self.scalars)
        grid = list(self.kernel.grid)
        group, own = self._group(make, grid)
        before = [op for op in self.before if not _is_program_id(op, 2)]
        if own is not None:
            for op in self.before:
                if _is_program_id(op, 2):
                    make.ops.append(Op("add", (own, make.const(0)), op.results, {}, (), op.span))
        else:
            before = self.before
        length = self.walk.args[0]
        body = self.walk.blocks[0]
        count = make.binary("div", make.binary("add", length, self.size - 1), self.size)
        each = make.binary("div", make.binary("add", count, self.groups - 1), self.groups)
        first = make.binary("mul", group, each)
        last = make.binary("min", make.binary("add", first, each), count)
        program = self._program(make, own)

        inner = Ops(self.walk.span, self.scalars)
        chunk = Value(TileType(i32), "chunk")
        start, stop = body.params
        size = inner.const(self.size)
        inner.ops.append(Op("mul", (chunk, size), (start,), {}, (), self.walk.span))
        end = inner.binary("add", start, size)
        inner.ops.append(Op("min", (end, length), (stop,), {}, (), self.walk.span))
        inner.ops.extend(body.ops)
        for pointer, value in zip(self.scratch, self.values, strict=True):
            stored = inner.cast(value, pointer.dtype)
            index = self._index(inner, program, chunk, value.shape)
            inner.effect(
                "store", (*index, stored), buffer=pointer.name, rank=len(index), masked=False
            )
        loop = Op(
            "for",
            (first, last, make.const(1)),
            (),
            {},
            (Block([chunk], inner.ops, []),),
            self.walk.span,
        )
        # the length may be computed from what was in front of the walk
        ops = [*before, *make.ops, loop]
        return replace(
            self.kernel,
            name=f"{self.kernel.name}_chunks",
            buffers=self.buffers(),
            grid=tuple(grid),
            body=Block([], _sorted(ops), []),
        )

    def combine(self, after: list[Op]) -> Kernel:
        make = Ops(self.walk.span, self.scalars)
        program = self._program(make, None)
        inner = Ops(self.walk.span, self.scalars)
        start, stop = Value(TileType(i32), "start"), Value(TileType(i32), "stop")
        chunk = inner.binary("div", start, self.size)
        loaded = []
        for pointer, value in zip(self.scratch, self.values, strict=True):
            index = self._index(inner, program, chunk, value.shape)
            got = inner.add(
                "load",
                index,
                TileType(pointer.dtype, value.shape),
                buffer=pointer.name,
                rank=len(index),
                masked=False,
                other=False,
            )
            got.name = value.name
            loaded.append(got if value.dtype == got.dtype else inner.binary("ne", got, 0))
        body = Block([start, stop], inner.ops, loaded)
        found = replace(self.walk, blocks=(body, self.walk.blocks[1]))
        return replace(
            self.kernel,
            buffers=self.buffers(),
            body=Block([], [*self.before, *make.ops, found, *after], []),
        )

    def _group(self, make: Ops, grid: list[Extent]) -> tuple[Value, Value | None]:
        """This work-group's number within its program and, where axis 2 is shared with it, the
        program's own number along that axis."""
        scalar = TileType(i32)
        if len(grid) < 3:
            grid.append(("const", self.groups))
            return make.add("program_id", (), scalar, axis=len(grid) - 1), None
        grid[2] = ("*", grid[2], ("const", self.groups))
        raw = make.add("program_id", (), scalar, axis=2)
        return make.binary("mod", raw, self.groups), make.binary("div", raw, self.groups)

    def _program(self, make: Ops, third: Value | None) -> Value:
        """The row of this program in the scratch buffers."""
        row: Value = make.const(0)
        for axis, extent in enumerate(self.kernel.grid):
            pid = make.add("program_id", (), TileType(i32), axis=axis)
            if axis == 2 and third is not None:
                pid = third
            row = make.binary("add", make.binary("mul", row, make.extent(extent)), pid)
        return row

    @staticmethod
    def _index(
        make: Ops, program: Value, chunk: Value, shape: tuple[int, ...]
    ) -> tuple[Value, ...]:
        index = [make.broadcast(program, shape), make.broadcast(chunk, shape)]
        for axis, n in enumerate(shape):
            at = make.arange(n, f"chunk_axis{axis}")
            for other in range(len(shape)):
                if other != axis:
                    at = make.expand(at, other)
            index.append(make.broadcast(at, shape))
        return tuple(index)


def _is_program_id(op: Op, axis: int) -> bool:
    return op.name == "program_id" and op.attrs["axis"] == axis


def _sorted(ops: list[Op]) -> list[Op]:
    """Operations in an order in which every value is made before it is read."""
    made_here = {r for op in ops for r in op.results}
    done: set[Value] = set()
    out: list[Op] = []
    rest = list(ops)
    while rest:
        ready = [op for op in rest if all(a in done or a not in made_here for a in _reads(op))]
        first = ready[0]
        out.append(first)
        done.update(first.results)
        rest.remove(first)
    return out


def _reads(op: Op) -> list[Value]:
    return [*op.args, *(a for b in op.blocks for inner in walk(b) for a in inner.args)]


class Bounds:
    """Upper and lower bounds of scalar integers as extents over the kernel's dimensions."""

    def __init__(self, kernel: Kernel, defs: dict[Value, Op]) -> None:
        self.defs = defs
        self.names = {s.value: s.name for s in kernel.scalars}
        self.lows = {s.name: 0 if s.implicit else s.lo for s in kernel.scalars}

    def upper(self, value: Value) -> Extent | None:
        return self._bound(value, True)

    def lower(self, value: Value) -> Extent | None:
        return self._bound(value, False)

    def _bound(self, value: Value, top: bool) -> Extent | None:
        if value in self.names:
            return ("name", self.names[value])
        op = self.defs.get(value)
        if op is None:
            return None
        if op.name == "const":
            return ("const", op.attrs["value"])
        if op.name == "scalar":
            return ("name", op.attrs["name"])
        if op.name == "program_id":
            return None if top else ("const", 0)
        if op.name not in ("add", "sub", "mul", "div", "min", "max"):
            return None
        a = self._bound(op.args[0], top)
        b = self._bound(op.args[1], top if op.name != "sub" else not top)
        if op.name in ("min", "max"):
            if a is not None and b is not None:
                return (op.name, a, b)
            # the smaller of two is below either, the larger above either
            return (a or b) if (op.name == "min") == top else None
        if a is None or b is None or (op.name in ("mul", "div") and b[0] != "const"):
            return None
        return ({"add": "+", "sub": "-", "mul": "*", "div": "//"}[op.name], a, b)
