import numpy as np
from hypothesis import strategies as st

from ferro.dsl.quantised import A8
from tests import reference
from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers import rows
from tests.reference import f64

ROWS = {"m": st.integers(0, 5), "k": st.integers(1, 700)}


def add_norm_reference(a: Arguments) -> Arguments:
    h = (a["h"] + a["x"]).astype(np.float32)
    normed = reference.rmsnorm(f64(h), f64(a["w"]), a["eps"]).astype(np.float32)
    return {"h": h, "y": reference.quantise(normed)}


def chosen_arguments(draw: Draw, m: int, k: int) -> Arguments:
    return {
        "w": draw.q8(7, k),
        "x": draw.a8(m, k),
        "index": draw.i32(-3, 9, m),
        "y": draw.f32(m, k),
    }


def chosen_reference(a: Arguments) -> Arguments:
    w, x = (reference.dequantise(a[n].q, a[n].scale) for n in "wx")
    there = (a["index"] >= 0) & (a["index"] < len(w))
    picked = np.where(there[:, None], w[np.clip(a["index"], 0, len(w) - 1)], 0)
    return {"y": (picked + x)[:, : a["y"].shape[1]]}


TestAddNorm = conformance(
    Case(
        rows.add_norm_a8,
        ROWS,
        lambda draw, m, k: {
            "x": draw.f32(m, k),
            "h": draw.f32(m, k),
            "w": draw.f32(k),
            "y": A8.empty(m, k),
            "eps": 1e-6,
        },
        add_norm_reference,
        [{"m": 3, "k": 700}, {"m": 1, "k": 1}, {"m": 2, "k": 4608}],
    )
)

TestChosenRows = conformance(
    Case(
        rows.chosen_rows,
        ROWS,
        chosen_arguments,
        chosen_reference,
        [{"m": 3, "k": 700}, {"m": 4, "k": 64}],
    )
)
