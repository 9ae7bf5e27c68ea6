from hypothesis import strategies as st

from ferro.dsl.quantised import A8
from kernels_src.quantise import quantise
from tests import reference
from tests.conformance import Case, conformance

TestQuantise = conformance(
    Case(
        quantise,
        {"m": st.integers(0, 9), "k": st.integers(1, 700)},
        lambda draw, m, k: {"x": draw.f32(m, k, scale=3.0), "y": A8.empty(m, k)},
        lambda a: {"y": reference.quantise(a["x"])},
        [{"m": 3, "k": k} for k in (700, 1, 32, 64, 576, 640, 704, 1536, 4608, 8192)],
    )
)
