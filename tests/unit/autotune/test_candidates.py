"""Candidates: order, one for each program, and hashes that see the program only."""

from __future__ import annotations

from dataclasses import replace

from autotune.candidates import Candidate, Skipped, candidates, fingerprint
from ferro import codegen
from ferro.codegen.program import Config
from ferro.dsl import kernel, tl
from tests.unit.autotune.support import SIMD, device, problem, product


def test_the_default_is_first_and_the_rest_grows() -> None:
    found = [c for c in candidates(problem(N=5000), device()) if isinstance(c, Candidate)]
    assert found[0].is_default and found[0].config == Config({"BLOCK": 64})
    assert [c.is_default for c in found[1:]] == [False] * (len(found) - 1)
    blocks = [c.config.constants["BLOCK"] for c in found[1:]]
    assert blocks == sorted(blocks) and set(blocks) == {16, 32, 64, 128, 256}


def test_configs_that_become_one_program_are_tried_once() -> None:
    found = list(candidates(problem(product, M=1, N=256, K=64), device()))
    kept = [c for c in found if isinstance(c, Candidate)]
    twins = [c.reason for c in found if isinstance(c, Skipped) and c.kind == "same program"]
    assert len({c.program for c in kept}) == len(kept)
    assert "same program: as BM=1 BN=16" in twins
    assert len(found) == len({str(c.config) for c in found})


def test_every_config_of_the_space_is_a_candidate_or_has_a_reason() -> None:
    from autotune.space import space

    wanted = problem(product, M=8, N=64, K=2048)
    found = {str(c.config) for c in candidates(wanted, device())}
    assert found == {str(config) for config in space(wanted, device())}


@kernel
def early(
    x: tl.ptr[tl.f32, N],
    y: tl.out[tl.f32, 1],
    z: tl.out[tl.f32, 1],
    BLOCK: tl.schedule[32, 64] = 32,
):
    one = tl.block(0, 1, 1)
    tl.store(z[one], tl.full([1], 1.0, tl.f32), mask=one < 1)
    for c in tl.chunks(N, 512):
        state = tl.partials()
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            v = tl.load(x[k], mask=k < c.stop, other=0.0)
            state = tl.accumulate(state, v, mask=k < c.stop)
        total = tl.combine(tl.add, tl.finish(state))
    tl.store(y[one], tl.full([1], 1.0, tl.f32) * total, mask=one < 1)


def test_splits_that_the_kernel_does_not_allow_are_not_possible() -> None:
    found = list(candidates(problem(early, N=2048), device()))
    split = [c for c in found if c.config.split > 1]
    assert {c.config.split for c in split} == {2, 4}
    assert {c.kind for c in split if isinstance(c, Skipped)} == {"not possible"}
    assert not any(isinstance(c, Candidate) for c in split)


def test_hashes_see_the_program_and_not_its_comments() -> None:
    wanted = problem()
    program = codegen.generate(wanted.kernel(wanted.default), SIMD, wanted.default)
    same = replace(program, source="// other words\n#line 7\n" + program.source)
    assert fingerprint(same) == fingerprint(program)
    assert fingerprint(replace(program, source=program.source + ";")) != fingerprint(program)
    assert fingerprint(replace(program, options=("-w",))) != fingerprint(program)
