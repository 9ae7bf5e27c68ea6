"""Products of int8 activations by weights of 4 bits, on every stack."""

from hypothesis import strategies as st

from ferro.codegen.program import Config
from kernels_src.matmul_q4 import gated_q4, matmul_q4
from tests.conformance import Arguments, Case, Draw, conformance
from tests.kernels.test_matmul import ALWAYS, FULL, SIZES
from tests.reference import Array, activate, dequantise, f64


def product(a: Arguments, w: str = "w") -> Array:
    return dequantise(a["x"].q, a["x"].scale)[:, : a["x"].cols] @ f64(a[w].dequantize()).T


def fused(draw: Draw, m: int, n: int, k: int) -> Arguments:
    extra = {"bias": draw.f32(n), "residual": draw.f32(m, n)}
    return {"w": draw.q4(n, k), "x": draw.a8(m, k), "y": draw.f32(m, n), **extra}


def gated(draw: Draw, m: int, n: int, k: int) -> Arguments:
    return {
        "gate": draw.q4(n, k),
        "up": draw.q4(n, k),
        "x": draw.a8(m, k),
        "y": draw.f32(m, n),
    }


TestMatmulQ4 = conformance(
    Case(
        matmul_q4,
        {**SIZES, "k": st.integers(1, 700)},
        fused,
        lambda a: {"y": activate(product(a) + a["bias"], "gelu_tanh") + a["residual"]},
        [*ALWAYS[:2], {"m": 1, "n": 3, "k": 4608}, {"m": 5, "n": 192, "k": 640}],
        FULL,
        constants={"ACT": "gelu_tanh"},
        rtol=1e-4,
        atol=2e-3,
    ),
    [Config(split=3), Config({"BM": 1}, split=2), Config(prefetch=False)],
)

TestGatedQ4 = conformance(
    Case(
        gated_q4,
        {**SIZES, "k": st.integers(1, 700)},
        gated,
        lambda a: {"y": activate(product(a, "gate"), "silu") * product(a, "up")},
        ALWAYS[:4],
        FULL,
        rtol=1e-4,
        atol=2e-2,
    )
)
