"""Counting the arithmetic of a launch against what the sizes say."""

from __future__ import annotations

import pytest

from ferro import arguments, work
from ferro.catalogue import find
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import bind


def counted(definition: KernelDefinition, sizes: dict[str, int], **constants: object) -> int | None:
    absent = [p.name for p in definition.parameters.values() if p.optional]
    kernel = definition.specialise(absent=absent, **constants)  # type: ignore[arg-type]
    values = {"starts": [0, sizes["T"]], "keys": [0, sizes["S"]]} if "S" in sizes else {}
    return work.operations(kernel, bind(kernel, arguments.make(kernel, sizes, values)))


@pytest.mark.parametrize("k", [32, 512, 544, 4608])
def test_q8_product_counts_two_a_step(k: int) -> None:
    found = counted(find("matmul_q8").definition, {"M": 8, "N": 128, "K": k}, BM=4, BN=64)
    assert found == 2 * 8 * 128 * k


def test_padding_of_tiles_counts() -> None:
    found = counted(find("matmul_q8").definition, {"M": 5, "N": 100, "K": 64}, BM=4, BN=64)
    assert found == 2 * 8 * 128 * 64


def test_f32_product() -> None:
    found = counted(find("matmul").definition, {"M": 4, "N": 64, "K": 96}, BM=4, BN=64, BK=4)
    assert found == 2 * 4 * 64 * 96


def test_lengths_read_from_a_buffer_are_followed() -> None:
    sizes = {"T": 4, "S": 128, "B": 1, "G": 1}
    found = counted(find("attention").definition, sizes, D=32, BR=4)
    # `longest` defaults to the largest dimension, so 32 tiles of 4 rows; scores and values.
    assert found == 32 * 2 * (2 * 4 * 128 * 32)


def test_kernel_without_a_dot() -> None:
    assert counted(find("rmsnorm").definition, {"M": 2, "K": 64}) == 0


LOOPS = """
def lengths(x: tl.ptr[tl.f32, N, 4], a: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N, 4]):
    i = tl.program_id(0, N)
    r = tl.arange(0, 4)
    acc = tl.zeros([4, 4], tl.f32)
    t = tl.full([4, 4], 1.0, tl.f32)
    if {condition}:
        for k in range({start}, {stop}, 2):
            acc = tl.dot(t, t, acc)
    tl.store(y[i, r], tl.sum(acc, axis=0))
"""


@pytest.mark.parametrize(
    ("condition", "start", "stop", "turns"),
    [
        ("N > 2", "1", "N", 2),
        ("N > 9", "1", "N", 0),
        ("N > 2", "i", "tl.minimum(N * 2, 7) % 5", 1),
        ("N > 2", "0", "N // 2 - 9", 0),
    ],
)
def test_branches_and_bounds(condition: str, start: str, stop: str, turns: int) -> None:
    text = LOOPS.format(condition=condition, start=start, stop=stop)
    found = counted(KernelDefinition.from_source(text), {"N": 5})
    assert found == 5 * turns * 2 * 4 * 4 * 4


def test_bound_that_depends_on_floats_is_unknown() -> None:
    stop = "tl.minimum(tl.load(a[i]).to(tl.i32), 1000)"
    text = LOOPS.format(condition="N > 2", start="0", stop=stop)
    assert counted(KernelDefinition.from_source(text), {"N": 5}) is None
