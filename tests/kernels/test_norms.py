from hypothesis import strategies as st

from ferro.codegen.program import Config
from ferro.dsl.quantised import A8
from kernels_src.norms import layernorm, rmsnorm, rmsnorm_a8, rmsnorm_add
from tests import reference
from tests.conformance import Case, conformance
from tests.reference import f64

SIZES = {"m": st.integers(0, 5), "k": st.one_of(st.integers(1, 300), st.integers(4000, 9000))}
ALWAYS = [
    {"m": 3, "k": 4500},
    {"m": 3, "k": 700},
    {"m": 1, "k": 1},
    *({"m": 2, "k": k} for k in (32, 64, 576, 640, 704, 1536, 4608, 8192)),
]

TestRmsnorm = conformance(
    Case(
        rmsnorm,
        SIZES,
        lambda draw, m, k: {
            "x": draw.f32(m, k),
            "w": draw.f32(k),
            "y": draw.f32(m, k),
            "eps": 1e-5,
        },
        lambda a: {"y": reference.rmsnorm(f64(a["x"]), f64(a["w"]), a["eps"])},
        ALWAYS,
    ),
    [Config(split=2)],
)

TestRmsnormAdd = conformance(
    Case(
        rmsnorm_add,
        SIZES,
        lambda draw, m, k: {
            "x": draw.f32(m, k),
            "w": draw.f32(k),
            "residual": draw.f32(m, k),
            "y": draw.f32(m, k),
            "eps": 1e-5,
        },
        lambda a: {"y": reference.rmsnorm(f64(a["x"]), f64(a["w"]), a["eps"]) + f64(a["residual"])},
        ALWAYS,
    ),
    [Config(split=2)],
)

TestRmsnormA8 = conformance(
    Case(
        rmsnorm_a8,
        SIZES,
        lambda draw, m, k: {
            "x": draw.f32(m, k),
            "w": draw.f32(k),
            "y": A8.empty(m, k),
            "eps": 1e-5,
        },
        lambda a: {
            "y": reference.quantise(
                reference.rmsnorm(f64(a["x"]), f64(a["w"]), a["eps"]).astype("f4")
            )
        },
        ALWAYS,
    )
)

TestLayernorm = conformance(
    Case(
        layernorm,
        SIZES,
        lambda draw, m, k: {
            "x": draw.f32(m, k),
            "w": draw.f32(k),
            "b": draw.f32(k),
            "y": draw.f32(m, k),
            "eps": 1e-5,
        },
        lambda a: {"y": reference.layernorm(f64(a["x"]), f64(a["w"]), f64(a["b"]), a["eps"])},
        ALWAYS,
        rtol=1e-5,
        atol=1e-5,
    )
)
