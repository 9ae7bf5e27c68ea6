from hypothesis import strategies as st

from ferro.dsl.quantised import Q8
from kernels_src.embedding import embed_f32, embed_q8
from tests.conformance import Arguments, Case, Draw, conformance
from tests.reference import Array, dequantise, f64

SIZES = {"v": st.integers(1, 60), "t": st.integers(0, 9), "k": st.integers(1, 700)}
ALWAYS = [{"v": 37, "t": 5, "k": k} for k in (640, 1, 32, 576, 704, 1536)]
FULL = [{"v": 37, "t": 5, "k": k} for k in (64, 4608, 8192)]


def arguments(draw: Draw, v: int, t: int, k: int) -> Arguments:
    tokens = draw.i32(-2, v + 1, t)
    return {"w": draw.q8(v, k), "tokens": tokens, "y": draw.f32(t, k), "scale": 22.625}


def floats(draw: Draw, v: int, t: int, k: int) -> Arguments:
    return {**arguments(draw, v, t, k), "w": draw.f32(k, v)}


def rows(w: Q8) -> Array:
    return dequantise(w.q, w.scale)[:, : w.cols]


def expected(a: Arguments, rows: Array) -> Array:
    known = (a["tokens"] >= 0) & (a["tokens"] < len(rows))
    return rows[a["tokens"] * known] * a["scale"] * known[:, None]


TestEmbedQ8 = conformance(
    Case(
        embed_q8,
        SIZES,
        arguments,
        lambda a: {"y": expected(a, rows(a["w"]))},
        ALWAYS,
        FULL,
    )
)

TestEmbedF32 = conformance(
    Case(embed_f32, SIZES, floats, lambda a: {"y": expected(a, f64(a["w"]).T)}, ALWAYS, FULL)
)
