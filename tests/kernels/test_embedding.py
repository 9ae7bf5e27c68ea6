from hypothesis import strategies as st

from kernels_src.embedding import embed_q8
from tests.conformance import Arguments, Case, Draw, conformance
from tests.reference import Array, dequantise


def arguments(draw: Draw, v: int, t: int, k: int) -> Arguments:
    tokens = draw.i32(-2, v + 1, t)
    return {"w": draw.q8(v, k), "tokens": tokens, "y": draw.f32(t, k), "scale": 22.625}


def expected(a: Arguments) -> Array:
    rows = dequantise(a["w"].q, a["w"].scale)[:, : a["w"].cols]
    known = (a["tokens"] >= 0) & (a["tokens"] < len(rows))
    return rows[a["tokens"] * known] * a["scale"] * known[:, None]


TestEmbedQ8 = conformance(
    Case(
        embed_q8,
        {"v": st.integers(1, 60), "t": st.integers(0, 9), "k": st.integers(1, 700)},
        arguments,
        lambda a: {"y": expected(a)},
        [{"v": 37, "t": 5, "k": k} for k in (640, 1, 32, 576, 704, 1536)],
    )
)
