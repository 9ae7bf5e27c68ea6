"""Pass: rewrites block-quantised accesses into plain loads and stores of derived buffers.

An a8 parameter ``x`` becomes the pointers ``x.q`` (int8), ``x.s`` (f32 scales) and ``x.b`` (int32
block sums); element loads of a q8 parameter ``w`` become loads of ``w.q`` and ``w.h``, of a q4 one
also of its minima ``w.m``. Blocks of weights stay one operation, since their layout is what makes
the dot fast. Layouts: layouts.py.
"""

from __future__ import annotations

from dataclasses import replace

from ferro.codegen.layouts import A8_ROWS, Q8_ROWS
from ferro.codegen.ops import Ops
from ferro.dsl.ir import Block, Extent, Kernel, Op, Pointer, Quantised, Value
from ferro.dsl.types import DType, TileType, f16, f32, i8, i32, u8


def blocks_of(cols: Extent) -> Extent:
    return ("cdiv", cols, ("const", 32))


def unmarked(e: Extent) -> Extent:
    """An extent without the marks that say which constants are a schedule's."""
    return e[:2] if e[0] in ("const", "name") else (e[0], *map(unmarked, e[1:]))


def padded(rows: Extent, multiple: int) -> Extent:
    return ("*", ("cdiv", rows, ("const", multiple)), ("const", multiple))


def derived_pointers(buffer: Quantised, biased: bool) -> tuple[Pointer, ...]:
    """The plain pointers that a block-quantised parameter is made of."""
    blocks = blocks_of(buffer.cols)
    cols = ("*", blocks, ("const", 32))
    parts: tuple[tuple[str, DType, tuple[Extent, ...]], ...]
    if buffer.format == "a8":
        rows = padded(buffer.rows, A8_ROWS)
        parts = (("q", i8, (rows, cols)), ("s", f32, (rows, blocks)), ("b", i32, (rows, blocks)))
    else:
        rows = padded(buffer.rows, Q8_ROWS)
        scales = ("*", rows, blocks)
        half = ("*", rows, ("*", blocks, ("const", 16)))
        parts = (
            (("q", u8, (half,)), ("h", f16, (scales,)), ("m", f16, (scales,)))
            if buffer.format == "q4"
            else (("q", u8 if biased else i8, (("*", rows, cols),)), ("h", f16, (scales,)))
        )
    return tuple(
        Pointer(f"{buffer.name}.{part}", dtype, extents, buffer.access, buffer.span)
        for part, dtype, extents in parts
    )


class _Expander:
    def __init__(self, kernel: Kernel, lanes: int, biased: bool) -> None:
        self.quantised = {b.name: b for b in kernel.buffers if isinstance(b, Quantised)}
        self.scalars = {s.name: s.value for s in kernel.scalars}
        self.grid = kernel.grid
        self.lanes = lanes
        self.biased = biased
        self.renamed: dict[Value, Value] = {}
        self.defs: dict[Value, Op] = {}
        self.sums: dict[Value, Value] = {}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            op = replace(
                op,
                args=tuple(self.renamed.get(a, a) for a in op.args),
                blocks=tuple(self.block(b) for b in op.blocks),
            )
            new = self.expand(op)
            for made in new:
                self.defs.update(dict.fromkeys(made.results, made))
            ops.extend(new)
        return Block(block.params, ops, [self.renamed.get(r, r) for r in block.results])

    def expand(self, op: Op) -> list[Op]:
        buffer = self.quantised.get(op.attrs.get("buffer", ""))
        if buffer is None:
            return self.known_sum(op)
        make = Ops(op.span, self.scalars)
        if op.name == "load_block" and buffer.format == "a8":
            self.load_a8(op, buffer, make)
        elif op.name == "load_block":
            return self.load_q8_block(op, buffer)
        elif op.name == "store_block":
            self.store_a8(op, buffer, make)
        else:
            self.load_elements(op, buffer, make)
        return make.ops

    def known_sum(self, op: Op) -> list[Op]:
        """Nothing for the sum of an activation block's values, which was stored with them."""
        if op.name == "reduce" and op.attrs["kind"] == "sum" and not op.attrs["masked"]:
            cast = self.defs.get(op.args[0])
            values = cast.args[0] if cast is not None and cast.name == "cast" else None
            if values in self.sums and op.attrs["axis"] == 1 and op.result.dtype is i32:
                self.renamed[op.result] = self.sums[values]
                return []
        return [op]

    def covers(self, rows: Value, mask: Value, extent: Extent, pad: int) -> bool:
        """True if ``mask`` is ``rows < extent`` and ``rows`` never leaves the padded matrix."""
        lt = self.defs.get(mask)
        if lt is None or lt.name != "lt" or lt.args[0] is not rows:
            return False
        if extent[0] != "name" or self.strip(lt.args[1]) is not self.scalars.get(extent[1]):
            return False
        size = rows.shape[0]
        axis = self.tile_axis(rows, size)
        if axis is None or pad % size:
            return False
        return unmarked(self.grid[axis]) == ("cdiv", unmarked(extent), ("const", size))

    def strip(self, v: Value) -> Value:
        op = self.defs.get(v)
        return (
            self.strip(op.args[0]) if op and op.name in ("broadcast", "scalar") and op.args else v
        )

    def tile_axis(self, rows: Value, size: int) -> int | None:
        """The program axis of ``program_id * size + arange(0, size)``, else None."""
        add = self.defs.get(rows)
        if add is None or add.name != "add":
            return None
        for base, tile in (add.args, add.args[::-1]):
            arange, mul = self.defs.get(tile), self.defs.get(self.strip(base))
            if arange is None or arange.name != "arange" or arange.attrs["start"] != 0:
                continue
            if size == 1 and mul is not None and mul.name == "program_id":
                return int(mul.attrs["axis"])
            if mul is None or mul.name != "mul":
                continue
            for pid, count in (mul.args, mul.args[::-1]):
                p, c = self.defs.get(pid), self.defs.get(count)
                if p and p.name == "program_id" and c and c.attrs.get("value") == size:
                    return int(p.attrs["axis"])
        return None

    def load_q8_block(self, op: Op, buffer: Quantised) -> list[Op]:
        if op.attrs["masked"] and self.covers(op.args[0], op.args[2], buffer.rows, Q8_ROWS):
            return [replace(op, args=op.args[:2], attrs={**op.attrs, "masked": False})]
        return [op]

    def load_a8(self, op: Op, buffer: Quantised, make: Ops) -> None:
        rows, block, *masks = op.args
        if masks and self.covers(rows, masks[0], buffer.rows, A8_ROWS):
            masks = []
        q, scale = op.results
        size = rows.shape[0]
        columns = make.binary("add", make.arange(32, "k32"), make.binary("mul", block, 32))
        wide_rows = make.broadcast(make.expand(rows, 1), (size, 32))
        wide_columns = make.broadcast(make.expand(columns, 0), (size, 32))
        self.renamed[q] = self.plain_load(
            make, f"{buffer.name}.q", (wide_rows, wide_columns), masks, TileType(i8, (size, 32))
        )
        blocks = make.broadcast(block, (size,))
        for part, result, dtype in (("s", scale, f32), ("b", None, i32)):
            loaded = self.plain_load(
                make, f"{buffer.name}.{part}", (rows, blocks), masks, TileType(dtype, (size,))
            )
            if result is None:
                self.sums[self.renamed[q]] = loaded
            else:
                self.renamed[result] = loaded
        self.renamed[q].name, self.renamed[scale].name = q.name, scale.name

    def plain_load(
        self, make: Ops, name: str, index: tuple[Value, ...], masks: list[Value], type: TileType
    ) -> Value:
        args = index
        if masks:
            mask = masks[0]
            for _ in range(type.rank - 1):
                mask = make.expand(mask, mask.type.rank)
            zero = make.broadcast(make.const(0, type.dtype), type.shape)
            args = (*index, make.broadcast(mask, type.shape), zero)
        return make.add(
            "load", args, type, buffer=name, rank=len(index), masked=bool(masks), other=bool(masks)
        )

    def store_a8(self, op: Op, buffer: Quantised, make: Ops) -> None:
        rows, block, q, scale, *masks = op.args
        size = rows.shape[0]
        columns = make.binary("add", make.arange(32, "k32"), make.binary("mul", block, 32))
        wide = tuple(
            make.broadcast(make.expand(x, axis), (size, 32))
            for x, axis in ((rows, 1), (columns, 0))
        )
        as_int = make.cast(q, i32)
        total = make.add(
            "reduce", (as_int,), TileType(i32, (size,)), kind="sum", axis=1, masked=False
        )
        blocks = make.broadcast(block, (size,))
        stores = (("q", wide, q), ("s", (rows, blocks), scale), ("b", (rows, blocks), total))
        for part, index, value in stores:
            args = (*index, value)
            if masks:
                mask = masks[0] if value.type.rank == 1 else make.expand(masks[0], 1)
                args = (*args, make.broadcast(mask, value.shape))
            make.effect(
                "store", args, buffer=f"{buffer.name}.{part}", rank=len(index), masked=bool(masks)
            )

    def load_elements(self, op: Op, buffer: Quantised, make: Ops) -> None:
        row, k, *rest = op.args
        lanes = self.lanes
        small = buffer.format == "q4"
        blocks = make.extent(blocks_of(buffer.cols))
        group = make.binary("shr", row, lanes.bit_length() - 1)
        lane = make.binary("and", row, lanes - 1)
        words, shift = (4, 3) if small else (8, 2)
        word = make.binary(
            "add",
            make.binary("mul", group, make.binary("mul", blocks, words)),
            make.binary("shr", k, shift),
        )
        byte = make.binary("add", make.binary("mul", lane, 4), make.binary("and", k, 3))
        at = make.binary("add", make.binary("mul", word, 4 * lanes), byte)
        block = make.binary("add", make.binary("mul", group, blocks), make.binary("shr", k, 5))
        scale_at = make.binary("add", make.binary("mul", block, lanes), lane)
        mask = rest[:1] if op.attrs["masked"] else []
        shape = op.result.shape

        def load(part: str, index: Value, dtype: DType) -> Value:
            args: tuple[Value, ...] = (index,)
            if mask:
                args = (index, mask[0], make.broadcast(make.const(0, dtype), shape))
            return make.add(
                "load",
                args,
                TileType(dtype, shape),
                buffer=f"{buffer.name}.{part}",
                rank=1,
                masked=bool(mask),
                other=bool(mask),
            )

        scale = make.cast(load("h", scale_at, f16), f32)
        stored = make.cast(load("q", at, u8 if small or self.biased else i8), i32)
        if small:
            upper = make.binary("and", k, 4)
            q = make.binary("and", make.binary("shr", stored, upper), 15)
            minimum = make.cast(load("m", scale_at, f16), f32)
            value = make.add("fma", (make.cast(q, f32), scale, minimum), op.result.type)
        else:
            q = make.binary("sub", stored, 128) if self.biased else stored
            value = make.binary("mul", make.cast(q, f32), scale)
        if mask and op.attrs["other"]:
            value = make.add("where", (mask[0], value, rest[1]), op.result.type)
        value.name = op.result.name
        self.renamed[op.result] = value


def expand(kernel: Kernel, lanes: int, biased: bool) -> tuple[Kernel, dict[Value, Value]]:
    """The kernel on plain pointers, and the block sums known for int8 tiles loaded from a8."""
    expander = _Expander(kernel, lanes, biased)
    body = expander.block(kernel.body)
    return replace(kernel, body=body), expander.sums
