"""The mathematical functions on every stack, over numbers from all binades, in every bit."""

from __future__ import annotations

import numpy as np
import pytest

from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.library import FUNCTIONS
from ferro.runtime import open_device
from tests.conformance import assert_same_bits, binades
from tests.stacks import FULL, Stack

SOURCE = """
@kernel
def apply(a: tl.ptr[f32, N], b: tl.ptr[f32, N], y: tl.out[f32, N],
          BLOCK: tl.schedule[64, 256] = 64):
    i = tl.block(0, N, BLOCK)
    u = tl.load(a[i], mask=i < N)
    v = tl.load(b[i], mask=i < N)
    tl.store(y[i], CALL, mask=i < N)
"""
COUNT = 1000 if FULL else 20


@pytest.mark.device
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_over_all_binades(name: str, quick_stack: Stack) -> None:
    if not quick_stack.exact:
        pytest.skip("its fma gets signs of zeros and subnormals wrong")
    call = f"tl.{name}(u, v)" if name == "div" else f"tl.{name}(u)"
    kernel = KernelDefinition.from_source(SOURCE.replace("CALL", call), f"<{name}>")
    a = binades(COUNT)
    given = {"a": a, "b": np.random.default_rng(1).permutation(a)}
    want, got = np.zeros_like(a), np.zeros_like(a)
    with np.errstate(all="ignore"):
        open_device("interpreter").run(kernel, y=want, **given)
    quick_stack(kernel, y=got, **given)
    assert_same_bits(got, want, name)
