from hypothesis import strategies as st

from kernels_src.vectors import activate_multiply, add, scale_add
from tests.conformance import Case, conformance
from tests.reference import activate, f64

SIZES = {"n": st.integers(0, 3000)}
ALWAYS = [{"n": 1000}, {"n": 1}, {"n": 0}, {"n": 8192}]

TestAdd = conformance(
    Case(
        add,
        SIZES,
        lambda draw, n: {"x": draw.f32(n), "y": draw.f32(n), "out": draw.f32(n)},
        lambda a: {"out": f64(a["x"]) + a["y"]},
        ALWAYS,
    )
)

TestScaleAdd = conformance(
    Case(
        scale_add,
        SIZES,
        lambda draw, n: {"x": draw.f32(n), "y": draw.f32(n), "out": draw.f32(n), "scale": -1.7},
        lambda a: {"out": f64(a["x"]) * a["scale"] + a["y"]},
        ALWAYS,
    )
)


def gated(act: str) -> type:
    return conformance(
        Case(
            activate_multiply,
            SIZES,
            lambda draw, n: {
                "gate": draw.f32(n, scale=4.0),
                "up": draw.f32(n),
                "out": draw.f32(n),
            },
            lambda a: {"out": activate(f64(a["gate"]), act) * a["up"]},
            ALWAYS,
            constants={"ACT": act},
        )
    )


TestRelu = gated("relu")
TestSilu = gated("silu")
TestGelu = gated("gelu")
TestGeluTanh = gated("gelu_tanh")
