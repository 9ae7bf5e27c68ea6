"""4-bit weights in kernels of one's own, on every stack."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers.small_weights import blocks_of, rows_of

SIZES = {"v": st.integers(1, 70), "k": st.integers(1, 130)}


def some_rows(draw: Draw, v: int, k: int) -> Arguments:
    return {"w": draw.q4(v, k), "tokens": draw.i32(-1, v, 5), "y": draw.f32(5, k)}


def chosen(a: Arguments) -> Arguments:
    rows = np.pad(a["w"].dequantize(), ((0, 1), (0, 0)))
    there = (a["tokens"] >= 0) & (a["tokens"] < a["w"].rows)
    return {"y": rows[np.where(there, a["tokens"], -1)]}


TestElements = conformance(
    Case(rows_of, SIZES, some_rows, chosen, [{"v": 33, "k": 70}], rtol=0, atol=0)
)

TestBlocks = conformance(
    Case(
        blocks_of,
        SIZES,
        lambda draw, v, k: {"w": draw.q4(v, k), "y": draw.f32(v, k)},
        lambda a: {"y": a["w"].dequantize()},
        [{"v": 33, "k": 70}],
        rtol=0,
        atol=0,
    )
)
