from hypothesis import strategies as st

from kernels_src.rows import add_rows, take_rows
from tests.conformance import Arguments, Case, Draw, conformance
from tests.reference import Array, f64


def arguments(draw: Draw, m: int, k: int, r: int) -> Arguments:
    return {"x": draw.f32(m, k), "rows": draw.i32(-2, m + 1, r), "y": draw.f32(r, k)}


def expected(a: Arguments) -> Array:
    known = (a["rows"] >= 0) & (a["rows"] < len(a["x"]))
    return f64(a["x"])[a["rows"] * known] * known[:, None]


TestTakeRows = conformance(
    Case(
        take_rows,
        {"m": st.integers(1, 9), "k": st.integers(1, 700), "r": st.integers(0, 9)},
        arguments,
        lambda a: {"y": expected(a)},
        [{"m": 5, "k": k, "r": 7} for k in (640, 1, 576, 1024)],
    )
)


def added(draw: Draw, m: int, k: int, r: int) -> Arguments:
    x, table = draw.f32(m, k), draw.f32(r, k)
    return {"x": x, "table": table, "rows": draw.i32(-2, r + 1, m), "y": draw.f32(m, k)}


def sums(a: Arguments) -> Array:
    known = (a["rows"] >= 0) & (a["rows"] < len(a["table"]))
    return f64(a["x"]) + f64(a["table"])[a["rows"] * known] * known[:, None]


TestAddRows = conformance(
    Case(
        add_rows,
        {"m": st.integers(0, 9), "k": st.integers(1, 700), "r": st.integers(1, 4)},
        added,
        lambda a: {"y": sums(a)},
        [{"m": 5, "k": k, "r": 3} for k in (640, 1, 1024)],
    )
)
