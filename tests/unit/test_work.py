"""Counting the arithmetic of a launch against what the sizes say."""

from __future__ import annotations

from typing import Any

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
    # `longest` defaults to the largest dimension: 2 x 16 tiles of 4 rows, of which the last 16 have
    # no queries; scores and values.
    assert found == 16 * 2 * (2 * 4 * 128 * 32)


def test_kernel_without_a_dot() -> None:
    assert counted(find("rmsnorm").definition, {"M": 2, "K": 64}) == 0


def moved(name: str, sizes: dict[str, int], values: Any = None, **constants: object) -> int:
    definition = find(name).definition
    absent = [p.name for p in definition.parameters.values() if p.optional]
    kernel = definition.specialise(absent=absent, **constants)  # type: ignore[arg-type]
    made = arguments.make(kernel, sizes, values or {})
    return work.moved(kernel, bind(kernel, made))


def test_a_product_moves_each_of_its_buffers_once() -> None:
    found = moved("matmul_q8", {"M": 8, "N": 128, "K": 512}, BM=4, BN=64)
    assert found == 128 * 512 + 128 * 16 * 2 + 8 * (512 + 16 * 8) + 8 * 128 * 4


def test_an_embedding_moves_the_rows_of_its_tokens_alone() -> None:
    found = moved("embed_q8", {"T": 3, "V": 1000, "K": 64}, BLOCK=64)
    assert found == pytest.approx(3 * (64 + 4) + 3 * 4 + 3 * 64 * 4, abs=3)


def test_attention_moves_the_keys_that_are_there() -> None:
    keys = {"starts": [0, 1], "keys": [0, 64], "longest": [1], "most": [4096]}
    sizes = {"T": 1, "S": 4096, "B": 1, "G": 1}
    found = moved("attention", sizes, keys, D=32, BR=4)
    assert found < 3 * 64 * 32 * 4 < 4096 * 32 * 4


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
        ("N > 2", "1", "N", 5 * 2),
        ("N > 9", "1", "N", 0),
        ("N > 2", "i", "tl.minimum(N * 2, 7) % 5", 1 + 1),
        ("N > 2", "0", "N // 2 - 9", 0),
    ],
)
def test_branches_and_bounds(condition: str, start: str, stop: str, turns: int) -> None:
    text = LOOPS.format(condition=condition, start=start, stop=stop)
    found = counted(KernelDefinition.from_source(text), {"N": 5})
    assert found == turns * 2 * 4 * 4 * 4


def test_bound_that_depends_on_floats_is_unknown() -> None:
    stop = "tl.minimum(tl.load(a[i]).to(tl.i32), 1000)"
    text = LOOPS.format(condition="N > 2", start="0", stop=stop)
    assert counted(KernelDefinition.from_source(text), {"N": 5}) is None
