"""Builder: loads and stores of elements, gathers, scatters and quantised blocks."""

from __future__ import annotations

from collections.abc import Sequence

from ferro.dsl.builder_core import Operand
from ferro.dsl.builder_elementwise import Elementwise
from ferro.dsl.ir import Buffer, Pointer, Quantised, Value
from ferro.dsl.types import DType, TileType, f32, i8, i32

BLOCK = 32


class Memory(Elementwise):
    """``load``, ``store``, ``load_block`` and ``store_block``."""

    def load(
        self,
        buffer: Buffer,
        index: Sequence[Operand],
        mask: Operand | None = None,
        other: Operand | None = None,
    ) -> Value:
        """Elements of ``buffer`` at index tiles; the result has their common shape.

        A q8 or q4 matrix gives dequantised f32 elements. Raises CompileError for a buffer that is
        only written, a wrong number of indices, or ``other`` without ``mask``.
        """
        dtype = self._readable(buffer)
        indices, shape = self._indices(buffer, index)
        if other is not None and mask is None:
            self.fail(
                "FER302",
                "`other` without `mask`",
                help="`other` is what masked-off lanes get: give `mask=` too, or drop it",
            )
        args = list(indices)
        if mask is not None:
            args.append(self._fitted("mask", self.mask("`mask`", mask), shape))
        if other is not None:
            args.append(self._fitted("other", self._stored("other", other, dtype), shape))
        return self.emit1(
            "load",
            args,
            TileType(dtype, shape),
            buffer=buffer.name,
            rank=len(indices),
            masked=mask is not None,
            other=other is not None,
        )

    def store(
        self,
        buffer: Buffer,
        index: Sequence[Operand],
        value: Operand,
        mask: Operand | None = None,
    ) -> None:
        """Write a tile at index tiles; its dtype must be the buffer's."""
        if buffer.access == "in":
            self.fail(
                "FER303",
                f"`{buffer.name}` is read only",
                help=f"declare it as `{buffer.name}: tl.out[...]` or `tl.inout[...]`",
            )
        if isinstance(buffer, Quantised):
            self.fail(
                "FER304",
                f"`{buffer.name}` is a quantised matrix",
                help="write whole blocks with `tl.store_block`",
            )
        indices, shape = self._indices(buffer, index)
        stored = self._fitted("value", self._stored("value", value, buffer.dtype), shape)
        args = [*indices, stored]
        if mask is not None:
            args.append(self._fitted("mask", self.mask("`mask`", mask), shape))
        self.emit("store", args, [], buffer=buffer.name, rank=len(indices), masked=mask is not None)

    def load_block(
        self, buffer: Buffer, rows: Operand, block: Operand, mask: Operand | None = None
    ) -> tuple[Value, ...]:
        """(i8[R, 32], f32[R]): block number ``block`` of each row and its scale, of a q4 matrix
        also its minimum f32[R]; 0 where masked.

        (i8[32], f32) for one row given as a scalar.
        """
        self._blocked(buffer, "tl.load_block", "in")
        row, number = self._block_place(rows, block)
        tile = self._rows_first(row, 1)
        args = [tile, number]
        if mask is not None:
            args.append(self._row_mask(mask, row))
        numbers = 2 if isinstance(buffer, Quantised) and buffer.format == "q4" else 1
        types = [TileType(i8, (*tile.shape, BLOCK)), *[TileType(f32, tile.shape)] * numbers]
        q, *rest = self.emit("load_block", args, types, buffer=buffer.name, masked=mask is not None)
        return (
            self.reshape(q, (*row.shape, BLOCK)),
            *(self.reshape(number, row.shape) for number in rest),
        )

    def store_block(
        self,
        buffer: Buffer,
        rows: Operand,
        block: Operand,
        q: Value,
        scale: Value,
        mask: Operand | None = None,
    ) -> None:
        """Write one block of 32 of each row of an ``a8_out`` matrix; one row may be a scalar."""
        self._blocked(buffer, "tl.store_block", "out")
        row, number = self._block_place(rows, block)
        wanted = [TileType(i8, (*row.shape, BLOCK)), TileType(f32, row.shape)]
        for name, value, type in zip(("values", "scales"), (q, scale), wanted, strict=True):
            if value.type != type:
                self.fail(
                    "FER305",
                    f"{name} of `tl.store_block` have the wrong type",
                    f"got: {value.type!r}",
                    f"wanted: {type!r}",
                    help="`tl.quantize_i8` of a tile f32[rows, 32] gives both",
                )
        args = [
            self._rows_first(row, 1),
            number,
            self._rows_first(q, 2),
            self._rows_first(scale, 1),
        ]
        if mask is not None:
            args.append(self._row_mask(mask, row))
        self.emit("store_block", args, [], buffer=buffer.name, masked=mask is not None)

    def _readable(self, buffer: Buffer) -> DType:
        if buffer.access == "out":
            self.fail(
                "FER306",
                f"`{buffer.name}` is written only",
                help=f"declare it as `{buffer.name}: tl.inout[...]` to read it too",
            )
        if isinstance(buffer, Pointer):
            return buffer.dtype
        if buffer.format not in ("q8", "q4"):
            self.fail(
                "FER304",
                f"`{buffer.name}` is a quantised matrix of format {buffer.format}",
                help="read whole blocks with `tl.load_block`",
            )
        return f32

    def _indices(
        self, buffer: Buffer, index: Sequence[Operand]
    ) -> tuple[tuple[Value, ...], tuple[int, ...]]:
        rank = len(buffer.extents)
        if len(index) != rank:
            self.fail(
                "FER307",
                f"`{buffer.name}` has {rank} axes and got {len(index)} indices",
                help="give one index tile or scalar for each declared extent",
            )
        values = [self._integer(f"index {n} of `{buffer.name}`", i) for n, i in enumerate(index)]
        indices = self.broadcast_all(f"the indices of `{buffer.name}`", values)
        return indices, indices[0].shape if indices else ()

    def _integer(self, what: str, operand: Operand) -> Value:
        value = self.value(operand)
        if value.dtype is not i32:
            self.fail(
                "FER308",
                f"{what} must be i32",
                f"got: {value.type!r}",
                help="cast it with `.to(tl.i32)`",
            )
        return value

    def _stored(self, what: str, operand: Operand, dtype: DType) -> Value:
        value = self.value(operand, dtype)
        if value.dtype is not dtype:
            self.fail(
                "FER309",
                f"implicit conversion of `{what}` from {value.dtype} to {dtype}",
                f"{what}: {value.type!r}",
                f"buffer: {dtype}",
                help=f"memory converts nothing: cast it with `.to(tl.{dtype})`",
            )
        return value

    def _fitted(self, what: str, value: Value, shape: tuple[int, ...]) -> Value:
        if self.common_shape(f"`{what}` and the indices", value.shape, shape) != shape:
            self.fail(
                "FER310",
                f"`{what}` has more elements than the indices name",
                f"{what}: {value.type!r}",
                f"indices: {TileType(i32, shape)!r}",
                help="index with tiles that span every axis, for example `p[m[:, None], n]`",
            )
        return self.broadcast(value, shape)

    def _blocked(self, buffer: Buffer, what: str, access: str) -> None:
        if not isinstance(buffer, Quantised):
            self.fail(
                "FER304",
                f"`{buffer.name}` is no quantised matrix",
                help=f"`{what}` takes a parameter declared `tl.q8`, `tl.q4` or `tl.a8`",
            )
        if buffer.access != access:
            wanted = "tl.a8_out" if access == "out" else "tl.q8`, `tl.q4` or `tl.a8"
            self.fail(
                "FER303" if access == "out" else "FER306",
                f"`{what}` cannot use `{buffer.name}`",
                f"access: {buffer.access}",
                help=f"declare it as `{wanted}`",
            )

    def _block_place(self, rows: Operand, block: Operand) -> tuple[Value, Value]:
        row, number = self._integer("rows", rows), self._integer("block", block)
        if row.type.rank > 1 or number.type.rank:
            self.fail(
                "FER311",
                "a block is addressed by a row or a tile of rows, and one block number",
                f"rows: {row.type!r}",
                f"block: {number.type!r}",
                help="rows is i32[R] (without `[:, None]`) or an i32 scalar, block an i32 scalar",
            )
        return row, number

    def _row_mask(self, mask: Operand, row: Value) -> Value:
        return self._rows_first(self._fitted("mask", self.mask("`mask`", mask), row.shape), 1)

    def _rows_first(self, value: Value, rank: int) -> Value:
        """``value`` with an axis of one row where a single row was addressed."""
        return value if value.type.rank == rank else self.expand(value, 0)
