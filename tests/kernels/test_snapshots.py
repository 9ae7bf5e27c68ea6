from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from kernels_src.snapshots import copy_rows_f16, copy_rows_f32, copy_rows_i8
from tests.conformance import Arguments, Case, Draw, conformance
from tests.reference import Array

SIZES = {
    "m": st.integers(1, 9),
    "n": st.integers(1, 9),
    "k": st.integers(1, 700),
    "x_row": st.integers(0, 9),
    "y_row": st.integers(0, 9),
    "count": st.integers(0, 9),
}


def case(definition, draw_rows: Callable[[Draw, int, int], Array]) -> Case:
    def arguments(draw: Draw, m, n, k, x_row, y_row, count) -> Arguments:
        x, y = draw_rows(draw, m, k), draw_rows(draw, n, k)
        return {"x": x, "y": y, "x_row": x_row, "y_row": y_row, "count": count}

    def expected(a: Arguments) -> dict[str, Array]:
        y = a["y"].copy()
        rows = min(a["count"], max(0, len(a["x"]) - a["x_row"]), max(0, len(y) - a["y_row"]))
        y[a["y_row"] : a["y_row"] + rows] = a["x"][a["x_row"] : a["x_row"] + rows]
        return {"y": y}

    some = [
        {"m": 5, "n": 7, "k": k, "x_row": 1, "y_row": 2, "count": 4} for k in (640, 1, 576, 1024)
    ]
    return Case(definition, SIZES, arguments, expected, some)


TestFloat32 = conformance(case(copy_rows_f32, Draw.f32))
TestFloat16 = conformance(case(copy_rows_f16, Draw.f16))
TestInt8 = conformance(
    case(copy_rows_i8, lambda draw, *shape: draw.i32(-128, 127, *shape).astype(np.int8))
)
