import numpy as np
from hypothesis import strategies as st

from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers.layers import clamped_linear, glu, group_norm
from tests.reference import Array, dequantise, f64, quantise, sigmoid


def clamped_reference(a: Arguments) -> Array:
    q, scale = quantise(np.clip(a["x"], a["in_lo"], a["in_hi"]))
    y = dequantise(q, scale) @ dequantise(a["w"].q, a["w"].scale).T
    return np.clip(y, a["out_lo"], a["out_hi"])


def clamped_arguments(draw: Draw, m: int, n: int, k: int) -> Arguments:
    return {
        "x": draw.f32(m, k),
        "w": draw.q8(n, k),
        "y": draw.f32(m, n),
        "in_lo": -1.5,
        "in_hi": 1.0,
        "out_lo": -9.0,
        "out_hi": 10.0,
    }


def group_norm_reference(a: Arguments) -> Array:
    x = f64(a["x"]).reshape(a["G"], -1)
    x = x - x.mean(axis=1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + a["eps"])
    return x.reshape(a["x"].shape) * f64(a["w"])[:, None] + f64(a["b"])[:, None]


def group_norm_arguments(draw: Draw, g: int, s: int, t: int) -> Arguments:
    return {
        "x": draw.f32(g * s, t),
        "w": draw.f32(g * s),
        "b": draw.f32(g * s),
        "y": draw.f32(g * s, t),
        "G": g,
        "S": s,
        "eps": 1e-5,
    }


TestGlu = conformance(
    Case(
        glu,
        {"m": st.integers(0, 4), "n": st.integers(1, 300)},
        lambda draw, m, n: {"x": draw.f32(m, 2 * n, scale=4.0), "y": draw.f32(m, n)},
        lambda a: {
            "y": f64(a["x"])[:, : a["y"].shape[1]] * sigmoid(f64(a["x"])[:, a["y"].shape[1] :])
        },
        [{"m": 3, "n": 130}, {"m": 1, "n": 1}],
    )
)

TestClampedLinear = conformance(
    Case(
        clamped_linear,
        {"m": st.integers(0, 5), "n": st.integers(1, 50), "k": st.integers(1, 700)},
        clamped_arguments,
        lambda a: {"y": clamped_reference(a)},
        [{"m": 3, "n": 37, "k": 600}, {"m": 1, "n": 1, "k": 31}],
        rtol=1e-4,
        atol=1e-3,
    )
)

TestGroupNorm = conformance(
    Case(
        group_norm,
        {"g": st.integers(1, 4), "s": st.integers(1, 9), "t": st.integers(1, 700)},
        group_norm_arguments,
        lambda a: {"y": group_norm_reference(a)},
        [{"g": 3, "s": 5, "t": 77}, {"g": 1, "s": 1, "t": 1}, {"g": 1, "s": 8, "t": 600}],
        rtol=1e-4,
        atol=1e-5,
    )
)
