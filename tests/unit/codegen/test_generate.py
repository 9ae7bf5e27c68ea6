"""What every generated program says of itself, and configs that are refused."""

from __future__ import annotations

import pytest

from ferro import codegen
from ferro.codegen import Config, ConfigError, Target
from ferro.dsl import kernel, tl
from ferro.dsl.kernel import KernelDefinition


@kernel
def scale(x: tl.ptr[tl.f32, M, N], y: tl.inout[tl.f32, M, N], B: tl.schedule[16, 32] = 16):
    n = tl.block(0, N, B)
    row = tl.program_id(1, M)
    total = tl.load(x[row, 0])
    for c in tl.chunks(N, 64):
        tl.store(y[row, n], total, mask=n < N)
        part = tl.load(x[row, c.start])
        total = tl.combine(tl.add, part)
    tl.store(y[row, n], total, mask=n < N)


def test_the_header_tells_what_it_is() -> None:
    config = Config({"B": 32})
    made = codegen.generate(scale.specialise(B=32), Target("simt", 16), config)
    where, target, constants, chosen, entry, pragma = made.source.splitlines()[:6]
    assert where == f"// scale from {scale.file}:{scale.line + 1}"
    assert (target, constants) == ("// target: simt-16-emulated", "// constants: B=32")
    assert chosen == "// config: B=32"
    assert entry == "// entry: scale on cdiv(N, 32) x M x 1 groups of 16 x 1 x 1"
    assert pragma == "#pragma OPENCL FP_CONTRACT OFF"


def test_variables_keep_their_names() -> None:
    source = codegen.generate(scale.specialise(), Target("simd", 8), Config()).source
    assert "for (int c_start = 0; c_start < N; c_start += 64)" in source


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(split=2), "stores before its chunks are combined"),
        (Config(lanes=3), "expected 2, 4, 8, 16"),
    ],
)
def test_impossible_configs(config: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        codegen.generate(scale.specialise(), Target("simd", 16), config)
    assert caught.value.exit_code == 2


@kernel
def overlapping(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N]):
    n = tl.arange(0, 64)
    for i in range(4):
        tl.store(y[n + i], tl.load(x[n], mask=n < N, other=0.0), mask=n + i < N)


def test_lanes_wait_before_they_overwrite_each_other() -> None:
    source = codegen.generate(overlapping.specialise(), Target("simt", 16), Config()).source
    assert "barrier(CLK_GLOBAL_MEM_FENCE)" in source[source.index("for (") :]


@kernel
def mirrored_blocks(x: tl.ptr[tl.f32, 16, 32], y: tl.a8_out[16, 32]):
    m = tl.arange(0, 16)
    k = tl.arange(0, 32)
    q, s = tl.quantize_i8(tl.load(x[m[:, None], k[None, :]]))
    tl.store_block(y, m, 0, q, s)
    tl.store_block(y, 15 - m, 0, q, s)


@kernel
def blocks_once(x: tl.ptr[tl.f32, 16, K], y: tl.a8_out[16, K]):
    m = tl.arange(0, 16)
    for kb in range(tl.cdiv(K, 32)):
        k = kb * 32 + tl.arange(0, 32)
        v = tl.load(x[m[:, None], k[None, :]], mask=(k < K)[None, :], other=0.0)
        q, s = tl.quantize_i8(v)
        tl.store_block(y, m, kb, q, s)


def test_lanes_wait_before_they_overwrite_parts_of_a_block() -> None:
    made = codegen.generate(mirrored_blocks.specialise(), Target("simt", 16), Config())
    stores = 2 * 3  # values, scales and sums
    assert made.source.count("barrier(CLK_GLOBAL_MEM_FENCE)") == stores


def test_blocks_that_are_written_once_need_no_barrier() -> None:
    source = codegen.generate(blocks_once.specialise(), Target("simt", 16), Config()).source
    assert "barrier(CLK_GLOBAL_MEM_FENCE)" not in source


def columns(step: int) -> str:
    """A copy of every ``step``-th element."""
    return f"""@kernel
def columns(x: tl.ptr[f32, N], y: tl.out[f32, N], B: tl.schedule[64, 256]):
    n = tl.block(0, N, B)
    t = tl.load(x[n * {step}], mask=n < N // {step}, other=0.0)
    tl.store(y[n], t, mask=n < N)
"""


@pytest.mark.parametrize(
    ("target", "step", "block", "unrolled"),
    [
        (Target("simd", 16), 1, 256, True),
        (Target("simd", 16), 3, 256, False),
        (Target("simd", 16), 3, 64, True),
        (Target("simt", 16), 3, 256, True),
    ],
)
def test_long_loops_in_which_lanes_load_one_by_one_stay_loops(
    target: Target, step: int, block: int, unrolled: bool
) -> None:
    made = KernelDefinition.from_source(columns(step), "k.py").specialise(B=block)
    source = codegen.generate(made, target, Config({"B": block})).source
    assert ("    UNROLL\n" in source) == unrolled


@kernel
def below_largest(x: tl.ptr[tl.f32, 768], y: tl.out[tl.f32, 256]):
    n = tl.arange(0, 256)
    t = tl.load(x[n * 3])
    tl.store(y[n], t - tl.max(t, axis=0))


def test_loops_that_fill_registers_are_unrolled() -> None:
    source = codegen.generate(below_largest.specialise(), Target("simd", 16), Config()).source
    assert source.count("    UNROLL\n") == source.count("    for (int i") >= 2
