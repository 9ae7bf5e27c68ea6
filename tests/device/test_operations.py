"""Each operation by itself, on shapes that fit the lanes and on those that do not, in every bit."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ferro.dsl.language import BUILTINS
from ferro.runtime import open_device
from tests.conformance import assert_same_bits
from tests.device import operations
from tests.stacks import FULL, Stack

SHAPES = [(3, 5), (16, 48)]
MORE = [(4, 32), (1, 48), (7, 64), (64, 4), (5, 1), (12, 20), (2, 96), (33, 8)]
TOGETHER = 8


@pytest.mark.device
@pytest.mark.parametrize("shape", [*SHAPES, *MORE] if FULL else SHAPES, ids=str)
@pytest.mark.parametrize("dtype", operations.EXPRESSIONS)
def test_bits(dtype: str, shape: tuple[int, int], quick_stack: Stack) -> None:
    rng = np.random.default_rng(shape)
    x, y = (operations.contents(rng, dtype, shape) for _ in "xy")
    if not quick_stack.exact and dtype in ("f16", "f32"):
        pytest.skip("its fma gets signs of zeros wrong")
    texts = operations.expressions(dtype, shape)
    for start in range(0, len(texts), TOGETHER):
        chosen = tuple(texts[start : start + TOGETHER])
        kernel = operations.kernel_of(dtype, shape, chosen)
        want, got = operations.outputs(kernel), operations.outputs(kernel)
        with np.errstate(all="ignore"):
            open_device("interpreter").run(kernel, x_=x, y_=y, **want)
        quick_stack(kernel, x_=x, y_=y, **got)
        for n, text in enumerate(chosen):
            assert_same_bits(got[f"o{n}"], want[f"o{n}"], f"{text} of {dtype}{list(shape)}")


# What has kernels of its own: memory in blocks, programs, walks and streaming sums.
ELSEWHERE = frozenset(
    "program_id block load_block store_block partials accumulate finish quantize_i8 chunks combine"
    " static_range static_assert split reshape trans bitcast add div abs load store".split()
)


def test_no_operation_is_left_out() -> None:
    written = " ".join(t for texts in operations.EXPRESSIONS.values() for t in texts)
    used = set(re.findall(r"\btl\.(\w+)\(", written))
    assert set(BUILTINS) - used == ELSEWHERE
