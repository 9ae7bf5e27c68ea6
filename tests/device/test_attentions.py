import numpy as np
from hypothesis import strategies as st

from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers.attentions import biased_attention, cap_50, rotary_2d
from tests.reference import Array, f64, softmax


def biased_reference(a: Arguments) -> Array:
    q, k, v = f64(a["q"]), f64(a["k"]), f64(a["v"])
    reach = a["R"]
    distance = np.arange(len(k))[None, :] - np.arange(len(q))[:, None]
    bias = f64(a["bias"])[:, np.clip(distance, -reach, reach) + reach]
    scores = np.einsum("thd,shd->hts", q, k) * a["scale"] + bias
    return np.einsum("hts,shd->thd", softmax(scores), v)


def rotary_2d_reference(a: Arguments) -> Array:
    x, cos, sin = f64(a["x"]), f64(a["cos"]), f64(a["sin"])
    y = np.empty_like(x)
    half = x.shape[-1] // 2
    for axis in (0, 1):
        part = x[..., axis * half : (axis + 1) * half]
        c, s = cos[a["place"][:, axis], None], sin[a["place"][:, axis], None]
        even, odd = part[..., 0::2], part[..., 1::2]
        y[..., axis * half : (axis + 1) * half : 2] = even * c - odd * s
        y[..., axis * half + 1 : (axis + 1) * half : 2] = odd * c + even * s
    return y


def biased_arguments(draw: Draw, t: int, s: int, h: int, reach: int) -> Arguments:
    return {
        "q": draw.f32(t, h, 32),
        "k": draw.f32(s, h, 32),
        "v": draw.f32(s, h, 32),
        "bias": draw.f32(h, 2 * reach + 1),
        "y": draw.f32(t, h, 32),
        "R": reach,
        "scale": 0.25,
    }


TestCap50 = conformance(
    Case(
        cap_50,
        {"n": st.integers(0, 700)},
        lambda draw, n: {"x": draw.f32(n, scale=60.0), "y": draw.f32(n)},
        lambda a: {"y": 50 * np.tanh(f64(a["x"]) / 50)},
        [{"n": 333}],
    )
)

TestBiasedAttention = conformance(
    Case(
        biased_attention,
        {
            "t": st.integers(0, 7),
            "s": st.integers(1, 200),
            "h": st.integers(1, 3),
            "reach": st.integers(1, 40),
        },
        biased_arguments,
        lambda a: {"y": biased_reference(a)},
        [{"t": 5, "s": 150, "h": 2, "reach": 20}, {"t": 1, "s": 1, "h": 1, "reach": 1}],
        constants={"D": 32},
        rtol=1e-4,
        atol=1e-5,
    )
)

TestRotary2d = conformance(
    Case(
        rotary_2d,
        {"t": st.integers(0, 9), "h": st.integers(1, 4)},
        lambda draw, t, h: {
            "x": draw.f32(t, h, 64),
            "cos": draw.f32(30, 16),
            "sin": draw.f32(30, 16),
            "place": draw.i32(0, 29, t, 2),
            "y": draw.f32(t, h, 64),
        },
        lambda a: {"y": rotary_2d_reference(a)},
        [{"t": 5, "h": 2}],
        constants={"D": 64},
    )
)
