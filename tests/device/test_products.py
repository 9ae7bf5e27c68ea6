"""int8 products in every way that a device can lower them: equal bits from each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ferro.codegen.program import Config, Target
from ferro.dsl.kernel import KernelDefinition
from ferro.runtime import open_device
from kernels_src.matmul import gated_q8, matmul_q8
from kernels_src.norms import rmsnorm_a8
from tests.conformance import Arguments, Case, Draw, assert_same_bits, conformance
from tests.device.strangers.products import long_rows, unaligned_rows
from tests.stacks import Stack


def plain(k: int) -> Callable[..., Arguments]:
    def arguments(draw: Draw, m: int, n: int) -> Arguments:
        a, b = (draw.i32(-128, 127, *shape).astype(np.int8) for shape in ((m, 2, k), (n, 16, k)))
        return {"a": a, "b": b, "out": draw.i32(-9, 9, m, 2, n, 16)}

    return arguments


def case(kernel: KernelDefinition, k: int) -> Case:
    def expected(a: Arguments) -> dict[str, Any]:
        left, right = (a[name][..., k - 96 :].astype(int) for name in "ab")
        return {"out": np.einsum("mik,njk->minj", left, right)}

    sizes = {"m": st.integers(1, 3), "n": st.integers(1, 3)}
    return Case(kernel, sizes, plain(k), expected, [{"m": 2, "n": 3}])


TestLongRows = conformance(case(long_rows, 96))
TestUnalignedRows = conformance(case(unaligned_rows, 97))


def variants(target: Target) -> list[Target]:
    """What else the same device could be given: fewer features, plain C."""
    less = replace(target, features=frozenset())
    return [target, less, replace(less, dot="emulated")]


def launches(draw: Draw) -> list[tuple[KernelDefinition, Config, dict[str, Any]]]:
    w, x, y = draw.q8(37, 1100), draw.a8(17, 1100), draw.f32(17, 37)
    both = {"gate": w, "up": draw.q8(37, 1100), "x": x, "y": y}
    norm = {"x": draw.f32(3, 700), "w": draw.f32(700), "y": draw.a8(3, 700), "eps": 1e-5}
    return [
        (matmul_q8, Config({"BM": 16, "BN": 16}), {"w": w, "x": x, "y": y}),
        (matmul_q8, Config({"BM": 8, "BN": 32}), {"w": w, "x": x, "y": y}),
        (gated_q8, Config({"BM": 4, "BN": 16}), both),
        (rmsnorm_a8, Config(), norm),
    ]


@pytest.mark.device
def test_features_change_no_bit(quick_stack: Stack) -> None:
    for index, (kernel, config, want) in enumerate(launches(Draw(7))):
        open_device("interpreter").run(kernel, **want)
        for target in variants(quick_stack.target):
            got = launches(Draw(7))[index][2]
            quick_stack.device.run(kernel, config, target, **got)
            for name, value in want.items():
                assert_same_bits(got[name], value, f"{kernel.name} {target.name}: {name}")
