"""What is known to be slow, or not to run, before anything is compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.prune import prune, prune_program
from ferro import codegen
from ferro.codegen.footprint import local_memory
from ferro.codegen.program import Config
from ferro.dsl import kernel, tl
from kernels_src.matmul import matmul
from kernels_src.norms import rmsnorm
from tests.unit.autotune.support import SIMD, SIMT, device, problem, product


def tiles(m: int, n: int) -> Config:
    return Config({"BM": m, "BN": n})


@pytest.mark.parametrize(
    ("rows", "kept"),
    [(1, {1}), (2, {1, 2}), (3, {1, 2, 4}), (8, {1, 2, 4, 8}), (192, {1, 2, 4, 8, 16})],
)
def test_tiles_that_save_no_program_are_dropped(rows: int, kept: set[int]) -> None:
    wanted = problem(product, M=rows, N=256, K=64)
    found = {m: prune(tiles(m, 64), wanted, device()) for m in (1, 2, 4, 8, 16)}
    assert {m for m, reason in found.items() if not reason} == kept
    assert all(r.startswith("tile too large: ") for r in found.values() if r)


def test_the_default_of_a_loop_is_kept_until_it_covers_everything() -> None:
    def reason(block: int, **sizes: int) -> str:
        return prune(Config({"BLOCK": block}), problem(rmsnorm, **sizes), device())

    assert reason(1024, M=1, K=1000) == ""
    assert reason(256, M=1, K=64) == "tile too large: BLOCK=256 for sizes up to 64"
    assert reason(64, M=1, K=10) == ""


def test_tiles_of_a_loop_do_not_count_as_tiles_of_the_grid() -> None:
    wanted = problem(matmul, M=16, N=16, K=640)
    declared = matmul.schedule["BK"].choices
    for block in declared:
        assert prune(Config({"BM": 1, "BN": 16, "BK": int(block)}), wanted, device()) == ""
    assert 16 in declared


def test_work_groups_that_the_device_does_not_have() -> None:
    small = device(**{"largest work-group": 8})
    config = Config({"BLOCK": 64}, lanes=32)
    assert prune(config, problem(target=SIMT), small) == "work-group too large: 32 of 8"
    assert prune(config, problem(target=SIMT), device()) == ""
    assert prune(Config({"BLOCK": 64}), problem(target=SIMD), small) == ""


def test_loops_that_carry_too_many_registers() -> None:
    wanted = problem(matmul, M=192, N=1024, K=64)
    config = Config({"BM": 8, "BN": 64, "BK": 4})
    assert prune(config, wanted, device()) == ""
    half = replace(config, lanes=4)
    assert prune(half, wanted, device()) == "too many registers: loops carry 128 of 16"


@kernel
def picky(y: tl.out[tl.f32, N], BLOCK: tl.schedule[16, 48] = 16):
    tl.static_assert(BLOCK == 16, "only 16")
    n = tl.block(0, N, BLOCK)
    tl.store(y[n], tl.full([BLOCK], 1.0, tl.f32), mask=n < N)


def test_what_the_kernel_itself_refuses() -> None:
    reason = prune(Config({"BLOCK": 48}), problem(picky), device())
    assert reason.startswith("not possible: ") and "only 16" in reason


def test_local_memory_that_the_device_does_not_have() -> None:
    wanted = problem(target=SIMT)
    program = codegen.generate(wanted.kernel(wanted.default), SIMT, wanted.default)
    assert local_memory(program) == 0
    assert prune_program(program, device()) == ""
    tiles = "    __local float a_tile[300];\n    __local uchar b[100];\n"
    larger = replace(program, source=tiles + program.source)
    assert local_memory(larger) == 1300
    assert prune_program(larger, device(**{"local memory": 1300})) == ""
    reason = prune_program(larger, device(**{"local memory": 1024}))
    assert reason == "local memory: 1300 bytes of 1024"
