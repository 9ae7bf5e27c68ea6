"""Drawn configs of the quantised products, every part of a config at once, on odd small shapes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ferro.codegen.program import Config
from ferro.dsl.kernel import KernelDefinition
from ferro.runtime import open_device
from kernels_src.matmul import gated_q8_a8, matmul_q8
from kernels_src.matmul_q4 import gated_q4_a8, matmul_q4
from tests.conformance import Arguments, Draw, assert_same_bits
from tests.stacks import FULL, Stack

KERNELS = (matmul_q4, matmul_q8, gated_q8_a8, gated_q4_a8)
SHAPES = ((1, 2, 5, 9, 17, 33), (1, 3, 31, 33, 70, 95), (1, 31, 33, 70, 513, 1030, 1100))
GROUP_AND_SPLIT = ((0, 1), (2, 1), (3, 1), (8, 1), (0, 2), (0, 3), (0, 7))
DRAWS = 60 if FULL else 1


def config(kernel: KernelDefinition, random: Random) -> Config:
    constants = {name: random.choice(p.choices) for name, p in kernel.schedule.items()}
    group, split = random.choice(GROUP_AND_SPLIT)
    return Config(constants, prefetch=random.random() < 0.5, group=group, split=split)


def arguments(kernel: KernelDefinition, draw: Draw, m: int, n: int, k: int) -> Arguments:
    """Of activations [m, k] and weights [n, k]; biases and residual are there half the time."""
    gated = "gate" in kernel.parameters
    weights = draw.q4 if "q4" in kernel.name else draw.q8
    names = ("gate", "up") if gated else ("w",)
    made: Arguments = {name: weights(n, k) for name in names}
    made |= {"x": draw.a8(m, k), "y": draw.a8(m, n) if gated else draw.f32(m, n)}
    if draw.rng.random() < 0.5:
        biases: dict[str, Any] = {"gate_bias": draw.f32(n), "up_bias": draw.f32(n)}
        made |= biases if gated else {"bias": draw.f32(n), "residual": draw.f32(m, n)}
    return made


@pytest.mark.device
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_drawn_config_gives_the_interpreters_bits(
    tuned_stack: Stack, kernel: KernelDefinition, seed: int
) -> None:
    random = Random(f"{kernel.name} {seed} {tuned_stack.name}")
    chosen = config(kernel, random)
    sizes = [random.choice(extents) for extents in SHAPES]
    activation = random.choice(kernel.meaning["ACT"].choices)
    want, got = (arguments(kernel, Draw(seed), *sizes) for _ in range(2))
    open_device("interpreter").run(kernel, ACT=activation, **want)
    tuned_stack(kernel, config=chosen, ACT=activation, **got)
    assert_same_bits(got["y"], want["y"], f"{kernel.name} {chosen} {activation} {sizes}")


@pytest.mark.device
@pytest.mark.parametrize("name", ["gated_q8_a8", "matmul_q8"])
def test_shared_chunks_are_joined_at_every_height_of_a_tile(tuned_stack: Stack, name: str) -> None:
    (kernel,) = (kernel for kernel in KERNELS if kernel.name == name)
    sizes = (5, 35, 600)
    want = arguments(kernel, Draw(1), *sizes)
    open_device("interpreter").run(kernel, ACT="none", **want)
    for height in kernel.schedule["BM"].choices:
        got = arguments(kernel, Draw(1), *sizes)
        tuned_stack(kernel, config=Config({"BM": height}, split=2), ACT="none", **got)
        assert_same_bits(got["y"], want["y"], f"{name} BM={height}")
