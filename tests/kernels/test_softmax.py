import numpy as np
import pytest
from hypothesis import strategies as st

from ferro.codegen.program import Config
from kernels_src.softmax import softmax
from tests.conformance import Case, conformance
from tests.reference import f64
from tests.reference import softmax as reference
from tests.stacks import Stack

TestSoftmax = conformance(
    Case(
        softmax,
        {"m": st.integers(0, 4), "n": st.one_of(st.integers(1, 300), st.integers(4000, 9000))},
        lambda draw, m, n: {"x": draw.f32(m, n, scale=5.0), "y": draw.f32(m, n)},
        lambda a: {"y": reference(f64(a["x"]))},
        [
            {"m": 3, "n": 4500},
            {"m": 3, "n": 700},
            {"m": 1, "n": 1},
            {"m": 2, "n": 4096},
            {"m": 1, "n": 4097},
            {"m": 1, "n": 65536},
        ],
        rtol=1e-5,
        atol=1e-9,
    ),
    [Config(split=2)],
)


@pytest.mark.parametrize("hidden", [(0, 4096), (4095, 9000), (0, 8192), (100, 5000)])
def test_a_whole_chunk_of_minus_infinity_adds_nothing(
    hidden: tuple[int, int], stack: Stack
) -> None:
    x = np.ones((1, 9000), np.float32)
    x[0, slice(*hidden)] = -np.inf
    y = np.empty_like(x)
    stack(softmax, x=x, y=y)
    np.testing.assert_allclose(y, reference(f64(x)), rtol=1e-5)
