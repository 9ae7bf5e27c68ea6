"""The space: what kernels declare, and the general settings where they can matter."""

from __future__ import annotations

from autotune.space import space, work
from ferro.codegen.program import Config, Target
from kernels_src.norms import rmsnorm
from kernels_src.quantise import quantise
from tests.unit.autotune.support import SIMD, SIMT, device, problem, product


def test_every_choice_of_every_constexpr_and_the_default() -> None:
    wanted = problem(product, M=64, N=512, K=64)
    found = {tuple(c.constants.values()) for c in space(wanted, device())}
    assert found == {(m, n) for m in (1, 2, 4, 8, 16) for n in (16, 32, 64)}
    assert wanted.default in space(wanted, device())
    assert wanted.default.constants == {"BM": 4, "BN": 64}


def test_no_config_twice_and_little_work_first() -> None:
    found = space(problem(rmsnorm, M=3, K=100), device())
    assert len({str(c) for c in found}) == len(found)
    assert [work(c)[0] for c in found] == sorted(work(c)[0] for c in found)


def test_lanes_vary_unless_weights_or_a_dot_need_the_target_s() -> None:
    def lanes(*args: object, **sizes: int) -> set[int | None]:
        return {c.lanes for c in space(problem(*args, **sizes), device())}  # type: ignore[arg-type]

    assert lanes(rmsnorm, SIMD, M=1, K=64) == {None, 8}
    assert lanes(rmsnorm, SIMT, M=1, K=64) == {None, 8, 32}
    assert lanes(product, SIMD, M=1, N=64, K=64) == {None}
    assert lanes(product, SIMT, M=1, N=64, K=64) == {None}


def test_lane_axes_where_several_have_names() -> None:
    found = {c.lane_axis for c in space(problem(product, M=1, N=64, K=64), device())}
    assert found == {(), ("m",), ("n",)}
    assert {c.lane_axis for c in space(problem(N=64), device())} == {()}


def test_splits_for_few_programs_with_several_chunks() -> None:
    def splits(units: int = 64, **sizes: int) -> set[int]:
        wanted = problem(product, **sizes)
        return {c.split for c in space(wanted, device(**{"compute units": units}))}

    assert splits(M=1, N=64, K=2048) == {1, 2, 4}
    assert splits(M=1, N=64, K=512) == {1}
    assert splits(units=2, M=192, N=1024, K=2048) == {1}
    assert {c.split for c in space(problem(quantise, M=1, K=4096), device())} == {1}


def test_groups_where_rows_of_programs_share_weights() -> None:
    def groups(kernel: KernelDefinition, **sizes: int) -> set[int]:
        return {c.group for c in space(problem(kernel, **sizes), device())}

    assert groups(product, M=192, N=64, K=64) == {0, 8}
    assert groups(product, M=1, N=64, K=64) == {0}
    assert groups(rmsnorm, M=192, K=64) == {0}


def test_plain_code_is_tried_beside_dp4a() -> None:
    target = Target("simt", 16, "dp4a")
    found = space(problem(product, target, M=1, N=64, K=64), device())
    assert {c.dot for c in found} == {None, "emulated"}
    assert {c.dot for c in space(problem(rmsnorm, target, M=1, K=64), device())} == {None}


def test_a_kernel_without_constexprs_has_its_default() -> None:
    from ferro.dsl.kernel import KernelDefinition

    text = (
        "def one(y: tl.out[f32, N]):\n    n = tl.block(0, N, 16)\n"
        "    tl.store(y[n], tl.full([16], 1.0, tl.f32), mask=n < N)\n"
    )
    wanted = problem(KernelDefinition.from_source(text))
    assert Config() in space(wanted, device())
