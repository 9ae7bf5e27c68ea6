from hypothesis import strategies as st

from ferro.codegen.program import Config
from kernels_src.matmul import gated, gated_q8, matmul, matmul_q8
from tests.conformance import Arguments, Case, Draw, conformance
from tests.reference import Array, activate, dequantise, f64

KS = (32, 64, 576, 640, 704, 1536, 4608, 8192)
NS = (1, 3, 192, 255, 960)
SIZES = {"m": st.integers(0, 20), "n": st.integers(0, 150), "k": st.integers(1, 1200)}
ALWAYS = [
    {"m": 7, "n": 255, "k": 704},
    {"m": 1, "n": 1, "k": 1},
    *({"m": 1, "n": 3, "k": k} for k in KS),
    *({"m": 5, "n": n, "k": 640} for n in NS),
]
FULL = [{"m": m, "n": n, "k": k} for m in (1, 8, 33) for n in NS for k in KS]


def product(a: Arguments, w: str = "w") -> Array:
    return dequantise(a["x"].q, a["x"].scale) @ dequantise(a[w].q, a[w].scale).T


def floats(draw: Draw, m: int, n: int, k: int) -> Arguments:
    return {"x": draw.f32(m, k), "w": draw.f32(k, n), "y": draw.f32(m, n)}


def plain(draw: Draw, m: int, n: int, k: int) -> Arguments:
    return {"w": draw.q8(n, k), "x": draw.a8(m, k), "y": draw.f32(m, n)}


def fused_floats(draw: Draw, m: int, n: int, k: int) -> Arguments:
    extra = {"bias": draw.f32(n), "residual": draw.f32(m, n)}
    return {**floats(draw, m, n, k), **extra}


def fused(draw: Draw, m: int, n: int, k: int) -> Arguments:
    extra = {"bias": draw.f32(n), "residual": draw.f32(m, n)}
    return {**plain(draw, m, n, k), **extra}


def gates(draw: Draw, m: int, n: int, k: int) -> Arguments:
    return {
        "gate": draw.q8(n, k),
        "up": draw.q8(n, k),
        "x": draw.a8(m, k),
        "y": draw.f32(m, n),
    }


def biased_gates(draw: Draw, m: int, n: int, k: int) -> Arguments:
    return {**gates(draw, m, n, k), "gate_bias": draw.f32(n), "up_bias": draw.f32(n)}


def float_gates(draw: Draw, m: int, n: int, k: int) -> Arguments:
    weights = {"gate": draw.f32(k, n), "up": draw.f32(k, n)}
    biases = {"gate_bias": draw.f32(n), "up_bias": draw.f32(n)}
    return {"x": draw.f32(m, k), **weights, **biases, "y": draw.f32(m, n)}


SMALL = [{"m": 7, "n": 70, "k": 704}, *(s for s in ALWAYS if s["m"] * s["n"] * s["k"] < 1e6)]

TestMatmul = conformance(
    Case(
        matmul,
        {**SIZES, "k": st.integers(1, 700)},
        floats,
        lambda a: {"y": f64(a["x"]) @ f64(a["w"])},
        SMALL,
        FULL,
        rtol=1e-4,
        atol=1e-4,
        short=lambda sizes: sizes["k"] < 2000,
    ),
    [Config(split=2)],
)

TestMatmulFused = conformance(
    Case(
        matmul,
        {**SIZES, "k": st.integers(1, 700)},
        fused_floats,
        lambda a: {
            "y": activate(f64(a["x"]) @ f64(a["w"]) + a["bias"], "silu") + a["residual"],
        },
        SMALL[:2],
        constants={"ACT": "silu"},
        rtol=1e-4,
        atol=1e-4,
    ),
    schedules=None,
)

TestGated = conformance(
    Case(
        gated,
        {**SIZES, "k": st.integers(1, 700)},
        float_gates,
        lambda a: {
            "y": activate(f64(a["x"]) @ f64(a["gate"]) + a["gate_bias"], "silu")
            * (f64(a["x"]) @ f64(a["up"]) + a["up_bias"])
        },
        SMALL[:2],
        FULL,
        rtol=1e-4,
        atol=1e-3,
        short=lambda sizes: sizes["k"] < 2000,
    ),
    [Config(split=2)],
)

TestMatmulQ8 = conformance(
    Case(matmul_q8, SIZES, plain, lambda a: {"y": product(a)}, ALWAYS, FULL, rtol=1e-4, atol=1e-3),
    [Config(split=3), Config({"BM": 1}, split=2), Config({"BM": 1}, group=3)],
)

TestMatmulQ8Fused = conformance(
    Case(
        matmul_q8,
        SIZES,
        fused,
        lambda a: {"y": activate(product(a) + a["bias"], "gelu_tanh") + a["residual"]},
        ALWAYS[:4],
        FULL,
        constants={"ACT": "gelu_tanh"},
        rtol=1e-4,
        atol=1e-3,
    )
)

TestGatedQ8 = conformance(
    Case(
        gated_q8,
        SIZES,
        gates,
        lambda a: {"y": activate(product(a, "gate"), "silu") * product(a, "up")},
        ALWAYS[:4],
        FULL,
        rtol=1e-4,
        atol=1e-2,
    )
)

TestGatedQ8Biased = conformance(
    Case(
        gated_q8,
        SIZES,
        biased_gates,
        lambda a: {
            "y": activate(product(a, "gate") + a["gate_bias"], "gelu_tanh")
            * (product(a, "up") + a["up_bias"])
        },
        ALWAYS[:2],
        constants={"ACT": "gelu_tanh"},
        rtol=1e-4,
        atol=1e-2,
    ),
    schedules=None,
)
