"""Blocks of q8 and q4 weights: scales, words for the int8 dot, single elements.

Layouts: layouts.py. A word of q4 holds two words of four values, one in the lower halves of its
bytes and one in the upper halves; they are unpacked where they are used.
"""

from __future__ import annotations

from enum import Enum, auto

from ferro.codegen.dialect import Ex
from ferro.codegen.emit import PULLS, Emitter, Index, Weights
from ferro.codegen.emit_memory import all_true
from ferro.codegen.layouts import is_biased
from ferro.codegen.poly import ZERO, Poly
from ferro.dsl.ir import Op, Value
from ferro.dsl.types import f16, f32, i8, i32, u32

# 2 KiB ahead with 16 lanes. One row of 9216x1024 from memory: 0.91 of the read rate without, 0.99
# with; eight rows 0.65 and 0.79 (Intel's runtime, 2 cores); 192 rows do not notice.
PREFETCH_BLOCKS = 4


class Bytes(Enum):
    """What the bytes of a word are: signed, biased by 128, or small enough to be either."""

    SIGNED = auto()
    BIASED = auto()
    SMALL = auto()


class Place:
    """Where a unit of a block lies for one register of rows: ``at`` for lane 0 when the lanes are
    neighbours in memory, else one offset per lane (``varying``) or a single one (``uniform``)."""

    def __init__(self, e: Emitter, op: Op, row: Poly, lane: bool, unit: Poly, units: int) -> None:
        rows, block = op.args[0], op.args[1]
        blocks = e.weights[op.attrs["buffer"]].blocks
        self.varying: Ex | None = None
        self.contiguous = False
        kb = Poly.of(e.scalar(block).code) if e.affine.of(block) is None else _base(e, block)
        per_group = Poly.of(blocks) * units
        affine = e.affine.of(rows)
        first = None if affine is None else e.offset(affine, (row,), 0 if lane else None)
        step_one = affine is not None and affine.strides[0].constant == 1
        inner = kb * units + unit
        if lane and first is not None and step_one and first.divisible(e.lanes):
            self.contiguous = True
            group = first.divide(e.lanes)
            self.at = (group * per_group + inner) * e.lanes
            return
        ex = e.pull(rows, (row,), 0 if lane else None)
        shift, rest = (e.lanes - 1).bit_length(), e.lanes - 1
        code = f"(({ex.code} >> {shift}) * {per_group.c}"
        at = e.dialect.widen(Ex(inner.c, i32)) if ex.wide else inner.c
        code += f" + {at}) * {e.lanes} + ({ex.code} & {rest})"
        self.varying = Ex(f"({code})", i32, ex.wide)
        self.at = ZERO


def _base(e: Emitter, value: Value) -> Poly:
    affine = e.affine.of(value)
    assert affine is not None
    return affine.base


def _fetch(e: Emitter, op: Op, p: str, place: Place, row: Poly, lane: bool, half: bool) -> Ex:
    """One unit (a u32 word or the bits of a half) for each lane, 0 where masked."""
    dtype = f16 if half else u32
    mask_value = op.args[2] if op.attrs["masked"] else None
    if place.varying is not None and not place.varying.wide:
        code = f"{p}[{place.varying.code}]"
        if mask_value is not None:
            code = f"({e.pull(mask_value, (row,), None).code} ? {code} : 0)"
        return Ex(code, dtype)
    mask = e.pull(mask_value, (row,), 0) if mask_value is not None else None
    code = e.template(
        "load",
        p=p,
        T=e.dialect.ctype(dtype, True),
        at=place.at,
        step="1",
        contiguous=place.contiguous,
        varying=place.varying.code if place.varying else e.iota(place.at, Poly.of(1)),
        mask=mask.code if mask and mask.wide else None,
        uniform=mask.code if mask and not mask.wide else None,
        other=e.dialect.widen(Ex("0", dtype)),
        all=all_true(e, mask_value, (row,), 0) if mask_value is not None else None,
        helper=lambda helper: e.dialect.helper(helper, True, dtype=dtype.name),
    )
    return Ex(f"({code})", dtype, True)


def pull_half(e: Emitter, op: Op, halves: str, index: Index, lane: int | None) -> Ex:
    """The f32 value of the half that the block of a row has in ``halves``."""
    place = Place(e, op, index[0], lane is not None, ZERO, 1)
    plain = place.contiguous and not op.attrs["masked"] and not e.dialect.converts_halves
    if plain and "vload_half" in e.dialect.target.features:
        return Ex(f"({e.template('load_half', p=halves, at=place.at)})", f32, True)
    bits = _fetch(e, op, halves, place, index[0], lane is not None, True)
    return Ex(f"{e.dialect.helper('f16_to_f32', bits.wide)}({bits.code})", f32, bits.wide)


def pull_word(e: Emitter, op: Op, row: Poly, word: Poly, lane: bool) -> tuple[Ex, Bytes]:
    """Four neighbouring int8 of a row's block as an int, and what its bytes are."""
    weights = e.weights[op.attrs["buffer"]]
    place = Place(e, op, row, lane, _stored(weights, word), weights.words_per_block)
    ex = _fetch(e, op, weights.words, place, row, lane, False)
    if weights.small:
        return _as_int(e, unpacked(e, ex, word)), Bytes.SMALL
    biased = is_biased(e.dialect.target.dot)
    if biased and op.attrs["masked"]:  # masked words are 0, which is -128 when biased
        flip = e.dialect.widen(Ex("0x80808080u", u32)) if ex.wide else "0x80808080u"
        mask = e.pull(op.args[2], (row,), 0 if lane else None)
        ex = e.dialect.select(mask, ex, Ex(flip, u32, ex.wide))
    return _as_int(e, ex), Bytes.BIASED if biased else Bytes.SIGNED


def _stored(weights: Weights, word: Poly) -> Poly:
    """The word in memory that holds word ``word`` of a block: of q4 one holds two."""
    if not weights.small:
        return word
    return Poly.of(f"(({word}) / 2)") if word.constant is None else Poly.of(word.constant // 2)


def unpacked(e: Emitter, stored: Ex, word: Poly) -> Ex:
    """The four values of ``word`` out of the stored word that holds them."""
    shift = f"(({word}) % 2 * 4)" if word.constant is None else str(word.constant % 2 * 4)
    low, shift = (
        e.dialect.widen(Ex(c, u32)) if stored.wide else c for c in ("0x0f0f0f0fu", f"(uint){shift}")
    )
    return Ex(f"(({stored.code} >> {shift}) & {low})", u32, stored.wide)


def _as_int(e: Emitter, ex: Ex) -> Ex:
    return Ex(f"as_{e.dialect.ctype(i32, ex.wide)}({ex.code})", i32, ex.wide)


def prefetch(e: Emitter, op: Op, row: Poly, word: Poly) -> None:
    """Ask for the word that is needed some blocks later: hardware prefetchers stop at pages."""
    weights = e.weights[op.attrs["buffer"]]
    units = weights.words_per_block
    place = Place(e, op, row, True, _stored(weights, word), units)
    if "prefetch" in e.dialect.target.features and place.contiguous:
        helper = e.dialect.helper("prefetch", True, abi=e.dialect.target.abi)
        ahead = place.at + PREFETCH_BLOCKS * units * e.lanes
        once = f"if (({word}) % 2 == 0) " if weights.small else ""
        e.line(f"{once}{helper}({weights.words} + {ahead}, 0, 3, 1);")


def pull_element(e: Emitter, op: Op, index: Index, lane: int | None) -> Ex:
    """One int8 of a block for each lane; lanes may be rows or positions in the block."""
    row, k = index
    if lane == 1 and e.dialect.kind == "simd":
        return _pull_vector(e, op, row, k * e.lanes)
    if lane == 1:
        k = k * e.lanes + "lane"
    if k.constant is None:
        word, byte = Poly.of(f"(({k}) / 4)"), f"(({k}) % 4)"
    else:
        word, byte = Poly.of(k.constant // 4), str(k.constant % 4)
    ex, bytes = pull_word(e, op, row, word, lane == 0)
    biased = bytes is Bytes.BIASED
    code = e.template("byte", word=ex.code, byte=byte, biased=biased, n=e.dialect.suffix(ex.wide))
    return Ex(code, i8, ex.wide or lane == 1)


def _pull_vector(e: Emitter, op: Op, row: Poly, k: Poly) -> Ex:
    """The bytes from ``k`` on of a row's block as one vector."""
    words = max(e.lanes // 4, 1)
    first = k.divide(4) if e.lanes >= 4 else Poly.of(f"(({k}) / 4)")
    parts, biased = [], False
    for i in range(words):
        ex, bytes = pull_word(e, op, row, first + i, False)
        biased = bytes is Bytes.BIASED
        parts.append(ex.code)
    code = e.template("bytes", parts=parts, biased=biased, second=f"({k}) % 4")
    return Ex(code, i8, True)


def pull_load_block(e: Emitter, op: Op, value: Value, index: Index, lane: int | None) -> Ex:
    weights = e.weights[op.attrs["buffer"]]
    if value is op.results[0]:
        return pull_element(e, op, index, lane)
    halves = weights.scales if value is op.results[1] else weights.minima
    return pull_half(e, op, halves, index, lane)


PULLS["load_block"] = pull_load_block
