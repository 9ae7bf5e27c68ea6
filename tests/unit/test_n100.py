"""The static model of the N100's GPU: arithmetic on what a compiler counted."""

from __future__ import annotations

import pytest

from benchmarks import n100, n100_device
from ferro.codegen.gen12 import Loop, Statistics
from ferro.codegen.program import Config
from ferro.profiling import Launch


def loop(cycles: int, dots: int, depth: int, innermost: bool) -> Loop:
    return Loop("L", depth, innermost, cycles, cycles, dots, 2 * dots, 4)


def counted(**given: int) -> Statistics:
    """16 rows by 16 columns; blocks of 32 k in an inner loop, chunks around it."""
    loops = (loop(800, 128, 2, True), loop(900, 128, 1, False))
    sizes = {"spill": 0, "private": 0, **given}
    return Statistics("k", 16, 128, sizes["spill"], sizes["private"], 0, 900, 1100, 20, loops)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(n100, "compiled", lambda name, config, variant: counted())


def test_loops_count_as_often_as_the_sizes_ask_for() -> None:
    # 32 blocks, 2 chunks, what is around once
    assert n100.cycles(counted(), 16, 16, 1024, 1) == 32 * 800 + 2 * 100 + 200
    assert n100.cycles(counted(), 16, 16, 1024, 2) == 64 * 800 + 2 * 100 + 200


@pytest.mark.usefixtures("compiled")
def test_one_row_is_bound_by_memory_and_many_by_cycles() -> None:
    small, config = Config({"BM": 1, "BN": 16}), Config({"BM": 16, "BN": 16})
    one = n100.product("matmul_q8", small, {"M": 1, "N": 1024, "K": 1024}, "plain")
    many = n100.product("matmul_q8", config, {"M": 512, "N": 1024, "K": 1024}, "plain")
    assert n100.limit(one) == "memory" and n100.limit(many) == "EUs"
    assert many.eus == pytest.approx(32 * 64 * 26000 / (24 * 0.75e9))
    assert one.share == pytest.approx(256 / 800)
    assert one.seconds == one.memory + n100_device.LAUNCH
    assert one.calibrated(0.5) == pytest.approx(2 * one.memory + n100_device.LAUNCH)


def test_the_calibrated_row_is_met_and_no_other_was_used() -> None:
    rates = {row.what: rate for row, rate in n100.published()}
    calibrated = n100_device.CALIBRATION
    assert rates[calibrated.what] == pytest.approx(calibrated.rate)
    assert 0.3 < n100.efficiency() < 1


def test_other_kernels_go_by_bytes_and_peak_arithmetic() -> None:
    launch = Launch("attention_f16", {}, 10**6, None, 10**9, 1)
    found = n100.predicted(launch, "plain")
    assert found.memory == 10**6 / n100_device.BANDWIDTH
    assert found.eus == 10**9 / n100_device.PEAK_F32


def test_a_driver_without_sub_group_reads_has_larger_tiles_of_gated_products() -> None:
    sizes = {"M": 192, "N": 4608, "K": 1024}
    found = {v: n100.chosen("gated_q8_a8", sizes, v) for v in n100.VARIANTS}
    assert {v: config and config.constants for v, config in found.items()} == {
        "block-read": {"BM": 4},
        "plain": {"BM": 8},
    }


def test_tables_are_labelled_as_predicted() -> None:
    launch = Launch("rmsnorm", {}, 10**6, None, None, 1)
    text = n100.shown("decode", [launch] * 3, 1, "plain")
    assert "PREDICTED" in text and "rmsnorm (memory)" in text
