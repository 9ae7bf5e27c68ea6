import numpy as np
from hypothesis import strategies as st

from kernels_src.rotary import rotary
from tests import reference
from tests.conformance import Arguments, Case, Draw, conformance
from tests.reference import f64


def arguments(draw: Draw, t: int, h: int, heads: int, c: int, rest: int) -> Arguments:
    angle = np.outer(np.arange(50), 1e4 ** (-np.arange(c) / c))
    return {
        "x": draw.f32(t, h + heads, 2 * c + rest),
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
        "positions": draw.i32(0, 49, t),
        "heads": heads,
    }


def case(pairs: str) -> Case:
    def expected(a: Arguments) -> dict[str, reference.Array]:
        tables = f64(a["cos"]), f64(a["sin"])
        x = reference.rotary(f64(a["x"]), *tables, a["positions"], a["heads"], pairs)
        return {"x": x}

    return Case(
        rotary,
        {
            "t": st.integers(0, 5),
            "h": st.integers(0, 3),
            "heads": st.integers(0, 3),
            "c": st.integers(1, 70),
            "rest": st.integers(0, 9),
        },
        arguments,
        expected,
        [
            {"t": 3, "h": 2, "heads": 3, "c": 33, "rest": 5},
            *({"t": 2, "h": 1, "heads": 2, "c": c, "rest": 0} for c in (32, 64, 128, 256)),
        ],
        constants={"PAIRS": pairs},
    )


TestHalves = conformance(case("halves"))
TestInterleaved = conformance(case("interleaved"))
