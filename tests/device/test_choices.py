import numpy as np
from hypothesis import strategies as st

from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers import choices


def condition_arguments(draw: Draw, n: int) -> Arguments:
    return {"x": draw.i32(-150, 150, n), "y": draw.i32(0, 9, n), "z": draw.f32(n)}


def condition_reference(a: Arguments) -> Arguments:
    v = a["x"]
    low, high = v < 0, v > 100
    both = np.where(v % 2 == 0, low, ~high)
    return {"y": low + 2 * (low ^ high), "z": both | (v == 7)}


def byte_arguments(draw: Draw, m: int) -> Arguments:
    return {
        "x": draw.i32(-128, 127, m, 4).astype(np.int8),
        "w": draw.i32(-128, 127, 64, 4).astype(np.int8),
        "kept": draw.i32(0, 9, m, 4),
        "y": draw.i32(0, 9, m, 64),
    }


def byte_reference(a: Arguments) -> Arguments:
    x, w = a["x"].astype(np.int32), a["w"].astype(np.int32)
    return {"kept": x, "y": x @ w.T}


TestConditions = conformance(
    Case(
        choices.conditions,
        {"n": st.integers(0, 200)},
        condition_arguments,
        condition_reference,
        [{"n": 100}, {"n": 1}],
    )
)

TestByteRows = conformance(
    Case(
        choices.byte_rows,
        {"m": st.integers(0, 150)},
        byte_arguments,
        byte_reference,
        [{"m": 64}, {"m": 65}],
    )
)
