import numpy as np
from hypothesis import strategies as st

from tests.conformance import Arguments, Case, Draw, conformance
from tests.device.strangers.convolutions import conv3x3, depthwise, max_pool, short_conv
from tests.reference import Array, f64


def depthwise_reference(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((4, 4), (0, 0)))
    return sum(padded[tap : tap + len(x)] * w[tap] for tap in range(9))


def conv3x3_reference(x: Array, w: Array) -> Array:
    height, width, _ = x.shape
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    y = np.zeros(((height + 1) // 2, (width + 1) // 2, w.shape[-1]))
    for dy in range(3):
        for dx in range(3):
            y += padded[dy : dy + height : 2, dx : dx + width : 2] @ w[dy, dx]
    return y


def max_pool_reference(x: Array) -> Array:
    height, width = x.shape[0] // 2 * 2, x.shape[1] // 2 * 2
    x = x[:height, :width]
    return np.maximum.reduce([x[dy::2, dx::2] for dy in (0, 1) for dx in (0, 1)])


def short_conv_reference(a: Arguments) -> dict[str, Array]:
    channels = a["w"].shape[0]
    b, gate, v = np.split(f64(a["bcx"]), 3, axis=1)
    y, state = f64(a["y"]), f64(a["new_state"])
    for s in range(len(a["state"])):
        rows = slice(a["starts"][s], a["starts"][s + 1])
        bx = np.concatenate([f64(a["state"][s]), (b * v)[rows]])
        count = len(bx) - 2
        conv = sum(bx[tap : tap + count] * a["w"][:, tap] for tap in range(3))
        y[rows] = gate[rows] * conv
        if count:
            state[s] = bx[-2:]
    assert y.shape[1] == channels
    return {"y": y, "new_state": state}


def short_conv_arguments(draw: Draw, b: int, c: int, longest: int) -> Arguments:
    starts = draw.packed(b, longest)
    rows = int(starts[-1])
    return {
        "bcx": draw.f32(rows, 3 * c),
        "w": draw.f32(c, 3),
        "state": draw.f32(b, 2, c),
        "starts": starts,
        "y": draw.f32(rows, c),
        "new_state": draw.f32(b, 2, c),
        "longest": longest,
    }


TestDepthwise = conformance(
    Case(
        depthwise,
        {"t": st.integers(0, 30), "c": st.integers(1, 80)},
        lambda draw, t, c: {"x": draw.f32(t, c), "w": draw.f32(9, c), "y": draw.f32(t, c)},
        lambda a: {"y": depthwise_reference(f64(a["x"]), f64(a["w"]))},
        [{"t": 21, "c": 50}, {"t": 1, "c": 1}, {"t": 4, "c": 64}],
        rtol=1e-5,
        atol=1e-5,
    )
)

TestConv3x3 = conformance(
    Case(
        conv3x3,
        {name: st.integers(1, 9) for name in ("h", "w", "ci")} | {"co": st.integers(1, 40)},
        lambda draw, h, w, ci, co: {
            "x": draw.f32(h, w, ci),
            "w": draw.f32(3, 3, ci, co),
            "y": draw.f32((h + 1) // 2, (w + 1) // 2, co),
        },
        lambda a: {"y": conv3x3_reference(f64(a["x"]), f64(a["w"]))},
        [{"h": 7, "w": 8, "ci": 3, "co": 20}, {"h": 1, "w": 1, "ci": 1, "co": 1}],
        rtol=1e-5,
        atol=1e-5,
    )
)

TestMaxPool = conformance(
    Case(
        max_pool,
        {"h": st.integers(1, 9), "w": st.integers(1, 9), "c": st.integers(1, 40)},
        lambda draw, h, w, c: {"x": draw.f32(h, w, c), "y": draw.f32(h // 2, w // 2, c)},
        lambda a: {"y": max_pool_reference(f64(a["x"]))},
        [{"h": 7, "w": 6, "c": 19}, {"h": 1, "w": 5, "c": 3}],
    )
)

TestShortConv = conformance(
    Case(
        short_conv,
        {"b": st.integers(1, 4), "c": st.integers(1, 70), "longest": st.integers(1, 9)},
        short_conv_arguments,
        short_conv_reference,
        [{"b": 3, "c": 40, "longest": 7}, {"b": 2, "c": 33, "longest": 1}],
        rtol=1e-5,
        atol=1e-5,
    )
)
