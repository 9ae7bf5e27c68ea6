"""Tuning on devices: all configs give the interpreter's bits, and launches take what won."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import Problem, tune
from autotune.bench import Bench
from autotune.candidates import Candidate, candidates, fingerprint
from autotune.space import space
from ferro import arguments, codegen
from ferro.codegen.errors import ConfigError
from ferro.codegen.program import Config, Target
from ferro.dsl import kernel, tl
from ferro.measure import Request, upload
from ferro.runtime import DeviceError, configs, open_device
from ferro.runtime.trials import Trial, Trials
from kernels_src.matmul import matmul_q8
from kernels_src.norms import rmsnorm, rmsnorm_a8
from kernels_src.softmax import softmax
from tests.conformance import FULL
from tests.stacks import Stack

pytestmark = pytest.mark.device


@kernel
def late_sum(
    x: tl.ptr[tl.f32, M, K],
    y: tl.out[tl.f32, M],
    BM: tl.schedule[1, 16] = 1,
    BLOCK: tl.schedule[32, 64] = 64,
):
    """A stranger's kernel whose walk can be split."""
    m = tl.block(0, M, BM)
    for c in tl.chunks(K, 64):
        state = tl.partials([BM])
        for k0 in range(c.start, c.stop, BLOCK):
            k = k0 + tl.arange(0, BLOCK)
            inside = (m < M)[:, None] & (k < c.stop)[None, :]
            v = tl.load(x[m[:, None], k[None, :]], mask=inside, other=0.0)
            state = tl.accumulate(state, v, axis=1, mask=inside)
        total = tl.combine(tl.add, tl.finish(state))
    tl.store(y[m], total, mask=m < M)


CASES = {
    "rmsnorm": (rmsnorm, {"M": 3, "K": 100}),
    "rmsnorm_a8": (rmsnorm_a8, {"M": 5, "K": 96}),
    "softmax": (softmax, {"M": 2, "N": 300}),
    "late_sum": (late_sum, {"M": 18, "K": 300}),
    "matmul_q8": (matmul_q8, {"M": 18, "N": 70, "K": 1056}),
}


def busy(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let splits be in the space although the device has few units."""
    monkeypatch.setitem(device.info.capabilities, "compute units", 1000)


def programs(problem: Problem, device: Any) -> Iterator[Config]:
    """Every config of the space, pruned or not; of those that become one program the first."""
    seen = set()
    for config in space(problem, device):
        try:
            program = codegen.generate(problem.kernel(config), problem.target, config)
        except ConfigError:
            continue  # lanes or splits that this kernel does not allow
        if fingerprint(program) not in seen:
            seen.add(fingerprint(program))
            yield config


def quick(config: Config, target: Target) -> bool:
    """False for work-items that take compilers long: large tiles, unrolled."""
    return FULL or target.kind == "simd" or math.prod(config.constants.values()) <= 64


@pytest.mark.timeout(3000 if FULL else 300)
@pytest.mark.parametrize("name", CASES)
def test_all_configs_give_the_bits_of_the_interpreter(
    name: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_time = stack.name.startswith("intel") or (stack.name, name) == ("pocl-simd", "rmsnorm")
    if not FULL and not in_time:
        pytest.skip("its compiler takes long for so many configs: `make conformance` runs it")
    definition, sizes = CASES[name]
    device, target = stack.device, stack.target
    if definition is late_sum:
        busy(device, monkeypatch)
    problem = Problem(Request(definition, sizes), target)
    expected = problem.expected()
    tried = 0
    for config in programs(problem, device):
        if "BN" in config.constants and not quick(config, target):
            continue
        made = arguments.copy(problem.arguments)
        held = {n: upload(device, value, target, config) for n, value in made.items()}
        device.run(problem.kernel(config), config, target, **held)
        for output, value in expected.items():
            assert arguments.differing(held[output].read(), value) == 0, (output, str(config))
        tried += 1
    assert tried > len(definition.schedule)


def test_expected_bits_do_not_depend_on_the_config() -> None:
    definition, sizes = CASES["matmul_q8"]
    problem = Problem(Request(definition, sizes), Target("simd", 16))
    want = problem.expected()["y"]
    for constants in ({"BM": 1, "BN": 16}, {"BM": 16, "BN": 32}):
        made = arguments.copy(problem.arguments)
        open_device("interpreter").run(definition, Config(constants), **made)
        assert arguments.differing(made["y"], want) == 0


# --- tuning for real ----------------------------------------------------------------------------


@pytest.fixture(params=["intel", "pocl"])
def device(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with a trials file of its own."""
    monkeypatch.setattr(
        "ferro.runtime.trials.cache_folder", lambda *parts: tmp_path.joinpath(*parts)
    )
    monkeypatch.setattr(configs, "shipped", lambda: ())
    monkeypatch.delenv(configs.FORCE, raising=False)
    try:
        with open_device(request.param) as opened:
            yield opened
    except DeviceError as error:
        pytest.skip(str(error))


@kernel
def scaled(
    x: tl.inout[tl.f32, N],
    s: tl.f32,
    BLOCK: tl.schedule[16, 32] = 16,
):
    """In place: a launch that saw another one's output would have other bits."""
    n = tl.block(0, N, BLOCK)
    tl.store(x[n], tl.load(x[n], mask=n < N) * s, mask=n < N)


@pytest.mark.timeout(300)
def test_tuning_finds_a_winner_that_launches_take(device: Any) -> None:
    trials = Trials.of(device.info)
    request = Request(scaled, {"N": 1000}, values={"s": [0.5]})
    found = tune(Problem.of(request, device), device, trials, 1.0)
    assert found.winner is not None and not found.failures
    assert all(trial.outcome == "timed" and trial.seconds > 0 for trial in found.tried)
    with open_device(device.name) as later:
        x = np.arange(1000, dtype=np.float32)
        assert later.config_for(scaled, x=x, s=0.5) == found.winner.config
        later.run(scaled, x=x, s=0.5)
        assert np.array_equal(x, np.arange(1000, dtype=np.float32) * np.float32(0.5))


def test_launches_of_all_kinds_take_the_winner(device: Any) -> None:
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    w, y = np.ones(32, np.float32), np.empty_like(x)
    given = {"x": x, "w": w, "y": y, "eps": 1e-5}
    assert device.config_for(rmsnorm, **given) == Config()
    won = Config({"BLOCK": 64})
    place = {"kernel": "norms.rmsnorm", "target": device.target.name, "sizes": {"M": 2, "K": 32}}
    trials = Trials.of(device.info)
    trials.add(Trial(config=won, program="p", outcome="timed", relative=0.5, **place))
    trials.save()
    device.chooser = configs.Chooser(device.info)
    assert device.config_for(rmsnorm, **given) == won
    assert device.config_for(rmsnorm, BLOCK=256, **given) == Config()
    device.launcher.clear()
    device.run(rmsnorm, **given)
    held = {**given, "x": device.array(x), "w": device.array(w), "y": device.array(y)}
    device.run(rmsnorm, **held)
    with device.plan() as plan:
        device.run(rmsnorm, **held)
    plan.run()
    assert np.array_equal(held["y"].read(), y)
    taken = {str(launch.kept[2]) for launch in device.launcher._launches.values()}
    assert taken == {str(won)}


def test_a_device_tells_wrong_bits_from_right_ones(device: Any) -> None:
    problem = Problem.of(Request(scaled, {"N": 100}, values={"s": [0.5]}), device)
    expected = problem.expected()
    good = Bench(device, problem.target, problem.arguments, expected)
    kernel = problem.kernel(problem.default)
    assert good.check(kernel, problem.default) == {"x": 0} and good.knows(problem.default)
    assert all(seconds > 0 for seconds in good.time(problem.default, 0.001))
    assert good.check(kernel, problem.default) == {"x": 0}
    wrong = {"x": expected["x"].copy()}
    wrong["x"][7] += 1
    bad = Bench(device, problem.target, problem.arguments, wrong)
    assert bad.check(kernel, problem.default) == {"x": 1} and not bad.knows(problem.default)


def test_a_split_config_is_timed_over_all_its_commands(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(device, monkeypatch)
    problem = Problem.of(Request(late_sum, {"M": 1, "K": 300}), device)
    split = next(
        c for c in candidates(problem, device) if isinstance(c, Candidate) and c.config.split == 2
    )
    bench = Bench(device, problem.target, problem.arguments, problem.expected())
    assert bench.check(split.kernel, split.config) == {"y": 0}
    assert len(bench.time(split.config, 0.0)) == 1
