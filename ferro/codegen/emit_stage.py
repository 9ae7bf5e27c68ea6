"""Operands of a work-group's products: blocks of eight int8 words.

A work-item reads the words of its own row together (one sub-group block read where the device has
it), and a row that all lanes share is one vector load from the same address on every lane. Both
stay in registers, from which the dot instruction takes a word without a move.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferro.codegen.dialect import Ex
from ferro.codegen.emit import Array, Emitter, Index, Weights
from ferro.codegen.emit_memory import Address, address
from ferro.codegen.emit_q8 import Place, pull_word, unpacked
from ferro.codegen.poly import ZERO, Poly
from ferro.codegen.subgroup import has_sub_group
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import u32

BLOCK_WORDS = 8


@dataclass(frozen=True)
class Operand:
    """An int8 tile seen as rows of words; ``k`` is the tile's axis along which it is packed."""

    tile: Value
    k: int
    wide: bool


def contiguous(e: Emitter, op: Op) -> bool:
    """True if a load of an int8 tile [rows, k] has its k in neighbouring bytes."""
    forms = [e.affine.of(a) for a in op.args[: op.attrs["rank"]]]
    if op.attrs["buffer"] in e.shared_buffers or op.attrs["masked"]:
        return False
    *outer, last = forms
    if last is None or last.strides[1].constant != 1:
        return False
    return all(f is not None and f.strides[1].is_zero() for f in outer)


def row_address(e: Emitter, op: Op, operand: Operand, row: Poly, byte: Poly) -> Address:
    """Where a byte of a contiguous row is."""
    return address(e, op, (row, byte), 0 if operand.wide else None)


def in_blocks(e: Emitter, operand: Operand) -> bool:
    """True if the operand can be read from its buffer as blocks of eight words."""
    op = e.plan.defs.get(operand.tile)
    if op is None or operand.tile in e.arrays or operand.k != 1:
        return False
    if op.name == "load_block":
        return True
    if op.name != "load" or not contiguous(e, op):
        return False
    at = row_address(e, op, operand, ZERO, ZERO)
    return at.offset.divisible(4) and at.step.divisible(4)


def block(e: Emitter, operand: Operand, row: Poly, number: Poly) -> str:
    """Writes the load of block ``number`` of a row; the name of the int8 variable with its words.

    ``in_blocks(e, operand)`` must hold.
    """
    op = e.plan.defs[operand.tile]
    name = e.names.fresh(f"{operand.tile.name or 'tile'}_words")
    if op.name == "load":
        at = row_address(e, op, operand, row, number * 4 * BLOCK_WORDS)
        pointer, _ = e.pointers[op.attrs["buffer"]]
        code = e.template(
            "block_load",
            p=pointer,
            at=at.offset.divide(4),
            step=at.step.divide(4),
            wide=operand.wide,
        )
    else:
        code = _weights(e, op, operand, row)
    e.line(f"const int8 {name} = {code};")
    return name


def _weights(e: Emitter, op: Op, operand: Operand, row: Poly) -> str:
    weights = e.weights[op.attrs["buffer"]]
    place = Place(e, op, row, operand.wide, ZERO, weights.words_per_block)
    if not place.contiguous or op.attrs["masked"]:
        parts = [pull_word(e, op, row, Poly.of(j), operand.wide)[0] for j in range(BLOCK_WORDS)]
        return f"(int8)({', '.join(p.code for p in parts)})"
    code = _stored(e, weights, place)
    if not weights.small:
        return code
    stored = e.names.fresh("stored")
    e.line(f"const int{weights.words_per_block} {stored} = {code};")
    words = [
        unpacked(e, Ex(f"(uint){stored}.s{j // 2}", u32), Poly.of(j)).code
        for j in range(BLOCK_WORDS)
    ]
    return f"(int8)({', '.join(words)})"


def _stored(e: Emitter, weights: Weights, place: Place) -> str:
    """The words of a block as they lie in memory, one vector for each work-item."""
    count = weights.words_per_block
    if has_sub_group(e.dialect.target):
        return e.template("block_read", p=weights.words, at=place.at, count=count)
    at = e.names.fresh("at")
    e.line(f"const int {at} = {e.iota(place.at, Poly.of(1))};")
    return e.template("block_gather", p=weights.words, at=at, count=count)


def dot_by_blocks(e: Emitter, on_lanes: Operand, other: Operand, array: Array, dot: str) -> None:
    """``array += on_lanes . other`` over all of k, both ``in_blocks``."""
    outer, inner = (0, 1) if array.lane == 0 else (1, 0)
    blocks = on_lanes.tile.shape[on_lanes.k] // (4 * BLOCK_WORDS)

    def at_block(number: Index) -> None:
        def at_outer(o: Index) -> None:
            w = block(e, on_lanes, o[0], number[0])

            def at_inner(i: Index) -> None:
                x = block(e, other, i[0], number[0])
                index = (o[0], i[0]) if array.lane == 0 else (i[0], o[0])
                target = e.element(array, index)
                for j in range(BLOCK_WORDS):
                    code = e.template(
                        f"dot/{dot}",
                        acc=target,
                        w=f"{w}.s{j}",
                        x=f"{x}.s{j}",
                        helper=lambda name: e.dialect.helper(name, True),
                    )
                    e.line(f"{target} = {code};")

            e.nest((array.registers[inner],), at_inner, unroll=True)

        e.nest((array.registers[outer],), at_outer, unroll=True)

    e.nest((blocks,), at_block, unroll=False)
