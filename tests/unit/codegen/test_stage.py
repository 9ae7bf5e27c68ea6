"""Operands of a work-group: sub-group reads where a target has them, plain loads elsewhere."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from ferro import codegen
from ferro.codegen.program import Config, Target
from ferro.dsl.kernel import KernelDefinition
from kernels_src.attention import attention_i8
from kernels_src.matmul import gated_q8, matmul_q8
from kernels_src.norms import rmsnorm
from tests.device.strangers.products import long_rows, unaligned_rows

PLAIN = Target("simt", 16, "dp4a")
BLOCK_READ = replace(PLAIN, features=frozenset({"block_read"}))


def source(kernel: KernelDefinition, target: Target, config: Config | None = None) -> str:
    config = config or Config()
    made = kernel.specialise(**dict(config.constants))
    return codegen.generate(made, target, config).source


ROWS = Config({"BM": 16, "BN": 16})


def test_sub_groups_read_blocks_and_broadcast_scales() -> None:
    text = source(matmul_q8, BLOCK_READ, ROWS)
    assert "intel_reqd_sub_group_size(16)" in text
    assert text.count("intel_sub_group_block_read8(") == 1
    assert "sub_group_broadcast(" in text
    assert "barrier" not in text


def test_without_sub_groups_scales_are_read_by_all_lanes() -> None:
    text = source(matmul_q8, PLAIN, ROWS)
    assert "sub_group" not in text
    assert "barrier" not in text
    assert "float xs[16];" in text
    assert text.count("vload8(") == 1


def test_two_products_read_the_activations_without_local_memory() -> None:
    text = source(gated_q8, PLAIN, Config({"BM": 8, "BN": 16}))
    assert text.count("vload8(") == 2
    assert "__local" not in text


@pytest.mark.parametrize("lanes", [8, 32])
def test_other_widths_are_no_sub_group(lanes: int) -> None:
    program = codegen.generate(matmul_q8.specialise(BN=32), BLOCK_READ, Config(lanes=lanes))
    assert "sub_group" not in program.source
    assert program.target.features == frozenset()


def test_reductions_exchange_lanes_or_use_local_memory() -> None:
    assert "intel_sub_group_shuffle_xor(" in source(rmsnorm, BLOCK_READ)
    assert "barrier(CLK_LOCAL_MEM_FENCE)" not in source(rmsnorm, BLOCK_READ)
    assert "barrier(CLK_LOCAL_MEM_FENCE)" in source(rmsnorm, PLAIN)


def test_rows_of_several_blocks() -> None:
    text = source(long_rows, PLAIN)
    assert text.count("vload8(") == 2
    assert "i < 3" in text.replace("i_2", "i")


def test_rows_that_may_start_at_any_byte_are_read_by_words() -> None:
    assert "vload8(" not in source(unaligned_rows, PLAIN)


@pytest.mark.parametrize("target", [PLAIN, BLOCK_READ], ids=["plain", "block-read"])
def test_scaled_operands_of_a_product_are_no_arrays(target: Target) -> None:
    text = codegen.generate(attention_i8.specialise(D=256, BR=1), target, Config()).source
    sizes = [
        math.prod(int(n) for n in re.findall(r"\d+", extents))
        for extents in re.findall(r"^ +(?:__local )?\w+ \w+((?:\[\d+\])+);", text, re.M)
    ]
    assert 0 < max(sizes) <= 64 * 16
