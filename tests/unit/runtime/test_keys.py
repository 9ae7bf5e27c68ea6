"""The parts of a program's cache key."""

from __future__ import annotations

import pytest

from ferro.codegen.program import Config, Target
from ferro.dsl import kernel, tl
from ferro.runtime.keys import key_parts
from ferro.runtime.listing import DeviceInfo

INFO = DeviceInfo(0, "pocl", "cpu", "Portable Computing Language", "3.0", "3.0", "cpu")
TARGET = Target("simd", 16, "emulated")


@kernel
def doubled(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N], BLOCK: tl.schedule[32, 64] = 64):
    n = tl.block(0, N, BLOCK)
    tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)


def parts(config: Config, target: Target = TARGET) -> dict[str, str]:
    return key_parts(doubled.specialise(**config.constants), target, config, INFO)


@pytest.mark.parametrize(
    "spelt",
    [
        Config({"BLOCK": 64}),
        Config(lanes=16),
        Config(dot="emulated"),
        Config({"BLOCK": 64}, lanes=16, split=1, dot="emulated"),
    ],
)
def test_defaults_that_are_spelt_out_make_no_other_key(spelt: Config) -> None:
    assert parts(spelt) == parts(Config())


@pytest.mark.parametrize(
    "other", [Config({"BLOCK": 32}), Config(lanes=8), Config(split=2), Config(lane_axis=("n",))]
)
def test_another_schedule_makes_another_key(other: Config) -> None:
    assert parts(other) != parts(Config())


def test_another_target_makes_another_key() -> None:
    assert parts(Config(), Target("simt", 16)) != parts(Config())
