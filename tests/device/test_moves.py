import numpy as np
from hypothesis import strategies as st

from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers import moves
from tests.reference import dequantise, f64

ROWS = {"m": st.integers(0, 6), "n": st.integers(1, 300)}


def top_1_arguments(draw: Draw, m: int, n: int) -> Arguments:
    # few different values, so that the largest stands in several places
    x = draw.i32(-9, 9, m, n).astype(np.float32)
    return {"x": x, "index": draw.i32(0, 9, m), "value": draw.f32(m)}


def checksum_reference(x: np.ndarray) -> np.ndarray:
    wrap = 2**32
    totals = []
    for row in x:
        total = 0
        for place, element in enumerate(row.view(np.uint32).tolist()):
            v = (element ^ place * 2654435769 % wrap) * 2246822519 % wrap
            total = (total + (v ^ v >> 15)) % wrap
        totals.append(total ^ total >> 13)
    return np.array(totals, np.uint32)


def permute_arguments(draw: Draw, m: int, n: int) -> Arguments:
    places = draw.rng.permutation(m).astype(np.int32)
    places[draw.rng.random(m) < 0.2] = -5
    return {
        "x": draw.f32(m, n),
        "places": places,
        "gathered": draw.f32(m, n),
        "scattered": draw.f32(m, n),
    }


def permute_reference(a: Arguments) -> Arguments:
    gathered, scattered = f64(a["gathered"]), f64(a["scattered"])
    for m, place in enumerate(a["places"]):
        if place >= 0:
            gathered[m] = a["x"][place]
            scattered[place] = a["x"][m]
    return {"gathered": gathered, "scattered": scattered}


TestTop1 = conformance(
    Case(
        moves.top_1,
        {"m": st.integers(0, 4), "n": st.integers(1, 3000)},
        top_1_arguments,
        lambda a: {"index": a["x"].argmax(axis=1), "value": a["x"].max(axis=1)},
        [{"m": 3, "n": 2500}, {"m": 1, "n": 1}, {"m": 2, "n": 1024}, {"m": 1, "n": 65536}],
        wild=False,
    )
)

TestChecksum = conformance(
    Case(
        moves.checksum,
        ROWS,
        lambda draw, m, n: {
            "x": draw.i32(-(2**31), 2**31 - 1, m, n),
            "y": draw.i32(0, 9, m).astype(np.uint32),
        },
        lambda a: {"y": checksum_reference(a["x"])},
        [{"m": 3, "n": 200}],
    )
)

TestPermuteRows = conformance(
    Case(
        moves.permute_rows,
        {"m": st.integers(1, 20), "n": st.integers(1, 90)},
        permute_arguments,
        permute_reference,
        [{"m": 11, "n": 37}],
    )
)

TestTranspose = conformance(
    Case(
        moves.transpose,
        {"m": st.integers(1, 70), "n": st.integers(1, 70)},
        lambda draw, m, n: {"x": draw.f32(m, n), "y": draw.f32(n, m)},
        lambda a: {"y": f64(a["x"]).T},
        [{"m": 40, "n": 33}, {"m": 1, "n": 1}],
    )
)

TestDequantise = conformance(
    Case(
        moves.dequantise,
        {"n": st.integers(1, 40), "k": st.integers(1, 200)},
        lambda draw, n, k: {"w": draw.q8(n, k), "y": draw.f32(n, k)},
        lambda a: {"y": dequantise(a["w"].q, a["w"].scale)[:, : a["w"].cols]},
        [{"n": 19, "k": 100}, {"n": 33, "k": 32}],
    )
)

TestAbsmax = conformance(
    Case(
        moves.absmax,
        {"m": st.integers(0, 40), "n": st.integers(1, 90)},
        lambda draw, m, n: {"x": draw.f16(m, n), "y": draw.f32(n)},
        lambda a: {"y": np.abs(f64(a["x"])).max(axis=0, initial=0)},
        [{"m": 21, "n": 50}],
    )
)
