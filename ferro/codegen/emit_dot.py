"""Products: int8 dots through the target's lowering, f32 dots as one fma per k.

The operand whose rows are on the lanes is read as vectors of words, the other one word at a time
for all lanes. The vnni lowerings multiply unsigned by signed bytes: the operand on the lanes is
biased by 128 and the sum starts at -128 * (sum of the other operand's values).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from ferro.codegen.dialect import Ex, bare
from ferro.codegen.emit import EMITS, Array, Emitter, row_major
from ferro.codegen.emit_q8 import Bytes, prefetch, pull_word
from ferro.codegen.emit_stage import (
    BLOCK_WORDS,
    Operand,
    contiguous,
    dot_by_blocks,
    in_blocks,
    row_address,
)
from ferro.codegen.emit_transpose import turn_operand
from ferro.codegen.layouts import is_biased
from ferro.codegen.poly import Poly
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import i32

# A product's loop over k is unrolled up to so many steps.
UNROLLED_WORDS = 8
UNROLLED_K = 8
# Larger tiles are loops: a compiler takes minutes for some thousands of statements in a row.
UNROLLED_TILE = 256
UNROLLED_PRODUCTS = 1024
# Sums of a float32 product that stay in vector registers, of which there are 32 at best.
SUMS = 32
# A sum of more products of -128 could reach 2^31, where dp4a saturates and the language wraps.
SATURATING_K = 2**17 - 1
_FMA = Op("fma", (), ())


def resolve(e: Emitter, value: Value, k: int) -> tuple[Value, int]:
    """The tile behind transposes, and its packed axis."""
    op = e.plan.defs.get(value)
    while op is not None and op.name == "transpose" and value not in e.arrays:
        value, k = op.args[0], op.attrs["perm"][k]
        op = e.plan.defs.get(value)
    return value, k


def word(e: Emitter, operand: Operand, row: Poly, j: Poly) -> tuple[Ex, Bytes]:
    """Word ``j`` of register ``row`` of the operand, and what its bytes are."""
    tile, k = operand.tile, operand.k
    op = e.plan.defs.get(tile)
    if op is not None and tile not in e.arrays and k == 1:
        if op.name == "load_block":
            return pull_word(e, op, row, j, operand.wide)
        if op.name == "load" and contiguous(e, op):
            return _load_word(e, op, operand, row, j), Bytes.SIGNED
    return _memory_word(e, operand, row, j), Bytes.SIGNED


def _load_word(e: Emitter, op: Op, operand: Operand, row: Poly, j: Poly) -> Ex:
    """A word straight from a buffer, where k is contiguous."""
    name, _ = e.pointers[op.attrs["buffer"]]
    at = row_address(e, op, operand, row, j * 4)
    code = e.template(
        "load_word",
        p=name,
        at=at.offset,
        quarter=at.offset.divide(4) if at.offset.divisible(4) else None,
        wide=operand.wide,
        step=at.step.c,
    )
    return Ex(code, i32, operand.wide)


def _memory_word(e: Emitter, operand: Operand, row: Poly, j: Poly) -> Ex:
    memory = e.memory(operand.tile)
    strides = row_major(operand.tile.shape)
    rows = strides[1 - operand.k]
    at = row * (e.lanes if operand.wide else 1) * rows + j * 4 * strides[operand.k]
    code = e.template(
        "tile_word",
        name=memory.name,
        at=at,
        step=rows.c,
        k=strides[operand.k].c,
        wide=operand.wide,
        n=e.dialect.suffix(operand.wide),
    )
    return Ex(code, i32, operand.wide)


@dataclass(frozen=True)
class Product:
    """An int8 dot whose sums are in ``array``, lanes along its axis ``array.lane``."""

    op: Op
    on_lanes: Operand
    other: Operand
    array: Array
    unsigned: bool

    @property
    def k(self) -> int:
        return self.op.args[0].shape[1]


def emit_dot_i8(e: Emitter, op: Op) -> None:
    if op.attrs.get("joined"):
        return
    products = [_started(e, each) for each in (op, *op.attrs.get("with", ()))]
    if len({product.array.lane for product in products}) == 1:
        _accumulate(e, products)
    else:
        for product in products:
            _accumulate(e, [product])
    for product in products:
        e.keep(product.op.result, product.array)


def _started(e: Emitter, op: Op) -> Product:
    """The product with its sums at where they start."""
    a, b = op.args
    lane = e.dimensions.lane_axis(op.result)
    (tile_a, k_a), (tile_b, k_b) = resolve(e, a, 1), resolve(e, b, 0)
    rows, columns = Operand(tile_a, k_a, lane == 0), Operand(tile_b, k_b, lane == 1)
    on_lanes, other = (rows, columns) if lane == 0 else (columns, rows)
    for operand in (rows, columns):
        if _needs_memory(e, operand):
            e.memory(operand.tile)
    array = e.declare(op.result, lane)
    unsigned = is_biased(e.dialect.target.dot) and lane is not None
    source = _streamed(e, on_lanes)
    small = source is not None and e.weights[source.attrs["buffer"]].small
    _start(e, other, array, unsigned and not small, a.shape[1] // 4)
    return Product(op, on_lanes, other, array, unsigned)


def _streamed(e: Emitter, operand: Operand) -> Op | None:
    """The load of the weights that an operand is."""
    source = e.plan.defs.get(operand.tile)
    return source if source is not None and source.name == "load_block" else None


def _accumulate(e: Emitter, products: list[Product]) -> None:
    """Products of one shape in one loop over k."""
    words, lane = products[0].k // 4, products[0].array.lane
    blocks = [_by_blocks(e, lane, words, (p.on_lanes, p.other)) for p in products]
    if any(blocks):
        for product, by_blocks in zip(products, blocks, strict=True):
            if by_blocks:
                dot = dot_of(e, lane, product.k)
                dot_by_blocks(e, product.on_lanes, product.other, product.array, dot)
            else:
                _by_words(e, [product])
        return
    _by_words(e, products)


def _by_words(e: Emitter, products: list[Product]) -> None:
    size = sum(_size(product.array) for product in products)
    straight = size <= UNROLLED_TILE

    def at_word(j: Poly) -> None:
        for product in products:
            _word_product(e, product, j, straight)

    words = products[0].k // 4
    _steps(e, words, min(UNROLLED_WORDS, UNROLLED_PRODUCTS // size), at_word)


def _word_product(e: Emitter, product: Product, j: Poly, straight: bool) -> None:
    """Adds the products of word ``j`` of every row and column."""
    array, on_lanes, other = product.array, product.on_lanes, product.other
    lane, source = array.lane, _streamed(e, on_lanes)
    dot = dot_of(e, lane, product.k)
    # the operand on the lanes is the outer loop: its word is loaded once for all of the other
    outer, inner = (0, 1) if lane == 0 else (1, 0)

    def helper(name: str) -> str:
        return e.dialect.helper(name, lane is not None, abi=e.dialect.target.abi)

    def at_outer(o: tuple[Poly, ...]) -> None:
        if source is not None and lane is not None:
            prefetch(e, source, o[0], j)
        w, bytes = word(e, on_lanes, o[0], j)
        w = _with_bias(e, w, bytes, product.unsigned)

        def at_inner(i: tuple[Poly, ...]) -> None:
            x, x_bytes = word(e, other, i[0], j)
            x = _with_bias(e, x, x_bytes, False)
            target = e.element(array, (o[0], i[0]) if lane == 0 else (i[0], o[0]))
            wide = e.dialect.widen(x) if lane is not None else x.code
            code = e.template(f"dot/{dot}", acc=target, w=w.code, x=wide, helper=helper)
            e.line(f"{target} = {code};")

        e.nest((array.registers[inner],), at_inner, unroll=straight or None)

    e.nest((array.registers[outer],), at_outer, unroll=straight)


def _by_blocks(e: Emitter, lane: int | None, words: int, operands: tuple[Operand, ...]) -> bool:
    simt = e.dialect.kind == "simt" and lane is not None
    return simt and words % BLOCK_WORDS == 0 and all(in_blocks(e, x) for x in operands)


def dot_of(e: Emitter, lane: int | None, k: int) -> str:
    dot = e.dialect.target.dot
    if dot == "dp4a" and k > SATURATING_K:
        return "emulated"
    return "emulated" if lane is None and dot not in ("dp4a", "emulated") else dot


def _needs_memory(e: Emitter, operand: Operand) -> bool:
    op = e.plan.defs.get(operand.tile)
    if op is None or operand.tile in e.arrays or operand.k != 1:
        return True
    if op.name == "load_block":
        return False
    return op.name != "load" or not contiguous(e, op)


def _size(array: Array) -> int:
    return array.registers[0] * array.registers[1]


def _steps(e: Emitter, count: int, unrolled: int, body: Callable[[Poly], None]) -> None:
    """A loop over k: straight up to ``unrolled`` steps."""
    e.nest((count,), lambda i: body(i[0]), unroll=count <= unrolled)


def _with_bias(e: Emitter, ex: Ex, bytes: Bytes, wanted: bool) -> Ex:
    if bytes is Bytes.SMALL or (bytes is Bytes.BIASED) == wanted:
        return ex
    flip = Ex("(int)0x80808080", i32)
    code = e.dialect.widen(flip) if ex.wide else flip.code
    return Ex(f"({ex.code} ^ {code})", i32, ex.wide)


def _start(e: Emitter, other: Operand, array: Array, unsigned: bool, words: int) -> None:
    """Zero, or -128 times the sum of the other operand's row where the lanes are unsigned."""
    axis = 1 if array.lane == 0 else 0
    if not unsigned:
        zero = e.dialect.widen(Ex("0", i32)) if array.lane is not None else "0"
        e.nest(array.registers, lambda i: e.line(f"{e.element(array, i)} = {zero};"))
        return

    def row(i: tuple[Poly, ...]) -> None:
        known = e.sums.get(other.tile)
        if known is not None:
            total = e.pull(known, i, None).code
        else:
            total = e.names.fresh("row_sum")
            e.line(f"int {total} = 0;")

            def add(j: Poly) -> None:
                x, bytes = word(e, other, i[0], j)
                x = _with_bias(e, x, bytes, False)
                helper = e.dialect.helper("sum4", False)
                e.line(f"{total} += {helper}({x.code});")

            _steps(e, words, UNROLLED_WORDS, add)
        start = e.dialect.widen(Ex(f"-128 * {total}", i32))

        def column(o: tuple[Poly, ...]) -> None:
            index = (o[0], i[0]) if array.lane == 0 else (i[0], o[0])
            e.line(f"{e.element(array, index)} = {start};")

        e.nest((array.registers[1 - axis],), column)

    e.nest((array.registers[axis],), row)


def emit_dot(e: Emitter, op: Op) -> None:
    a, b, acc = op.args
    array = e.in_place(op.result, acc)
    lane = array.lane
    if lane is not None:
        turn_operand(e, b if lane == 1 else a, lane, 1 - lane)
    if _size(array) <= UNROLLED_TILE:
        for first, count in _strips(array):
            _strip(e, op, array, first, count, True)
    else:
        _strip(e, op, array, 0, array.registers[_inner(array)], False)
    e.keep(op.result, array)


def _inner(array: Array) -> int:
    """The axis whose elements share one load of the operand on the lanes."""
    return 1 if array.lane == 0 else 0


def _strips(array: Array) -> list[tuple[int, int]]:
    """Pieces of a tile whose sums stay in registers while k runs, as (first, count) along its
    inner axis."""
    rows = array.registers[_inner(array)]
    most = max(SUMS // array.registers[1 - _inner(array)], 1) if array.lane is not None else rows
    pieces = -(-rows // most)
    edges = [rows * i // pieces for i in range(pieces + 1)]
    return [(start, stop - start) for start, stop in pairwise(edges)]


def _strip(e: Emitter, op: Op, array: Array, first: int, count: int, straight: bool) -> None:
    """The whole of k for ``count`` elements of the inner axis."""
    a, b, _ = op.args
    lane, inner = array.lane, _inner(array)

    def pulled(axis: int, k: Poly, at: Poly) -> Ex:
        index, value = ((at, k), a) if axis == 0 else ((k, at), b)
        return e.pull(value, index, axis if lane == axis else None)

    def at_k(k: Poly) -> None:
        def at_outer(o: tuple[Poly, ...]) -> None:
            held = _held(e, pulled(1 - inner, k, o[0]), op)

            def at_inner(i: tuple[Poly, ...]) -> None:
                at = i[0] + first
                target = e.element(array, (at, o[0]) if inner == 0 else (o[0], at))
                old = Ex(target, op.result.dtype, lane is not None)
                other = pulled(inner, k, at)
                factors = (other, held) if inner == 0 else (held, other)
                new = e.dialect.apply(_FMA, [*factors, old], op.result)
                e.line(f"{target} = {bare(new.code)};")

            e.nest((count,), at_inner, unroll=straight)

        e.nest((array.registers[1 - inner],), at_outer, unroll=straight)

    _steps(e, a.shape[1], min(UNROLLED_K, UNROLLED_PRODUCTS // _size(array)), at_k)


def _held(e: Emitter, ex: Ex, op: Op) -> Ex:
    """The value of an expression in a variable of its own."""
    name = e.names.fresh("factor")
    e.line(f"const {e.dialect.ctype(op.result.dtype, ex.wide)} {name} = {bare(ex.code)};")
    return Ex(name, ex.dtype, ex.wide)


EMITS.update(dot_i8=emit_dot_i8, dot=emit_dot)
