"""Launches on every CPU runtime: arguments of all kinds, plans, sharing, errors, lost devices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from ferro.codegen.program import DOT_LOWERINGS, Argument, Config, Entry, Program
from ferro.dsl import kernel, tl
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.launch import LaunchError
from ferro.dsl.quantised import A8, Q8
from ferro.runtime import BuildError, DeviceError, DeviceLost, LimitError, open_device
from tests import stacks

pytestmark = pytest.mark.device
assert stacks.STACKS  # rusticl must be enabled before any device is opened


@kernel
def scaled(
    x: tl.ptr[tl.f32, N],
    y: tl.out[tl.f32, N],
    s: tl.f32,
    add: tl.ptr[tl.f32, N] = None,
    MODE: tl.const["times", "plus"] = "times",
    BLOCK: tl.schedule[16, 64] = 64,
):
    n = tl.block(0, N, BLOCK)
    v = tl.load(x[n], mask=n < N)
    if MODE == "times":
        v = v * s
    else:
        v = v + s
    if add is not None:
        v = v + tl.load(add[n], mask=n < N)
    tl.store(y[n], v, mask=n < N)


@kernel
def product(w: tl.q8[N, K], x: tl.a8[M, K], y: tl.out[tl.f32, M, N], BN: tl.schedule[16] = 16):
    n = tl.block(0, N, BN)
    m = tl.block(1, M, 1)
    for c in tl.chunks(K, 512):
        part = tl.zeros([1, BN], tl.f32)
        for kb in range(c.start // 32, tl.cdiv(c.stop, 32)):
            wq, ws = tl.load_block(w, n, kb, mask=n < N)
            xq, xs = tl.load_block(x, m, kb, mask=m < M)
            d = tl.dot_i8(xq, wq.T)
            part = tl.fma(d.to(tl.f32), xs[:, None] * ws[None, :], part)
        acc = tl.combine(tl.add, part)
    tl.store(y[m[:, None], n[None, :]], acc, mask=(m < M)[:, None] & (n < N)[None, :])


@kernel
def blocks(x: tl.ptr[tl.f32, M, 32], y: tl.a8_out[M, 32]):
    m = tl.block(0, M, 1)
    v = tl.load(x[m[:, None], tl.arange(0, 32)[None, :]], mask=(m < M)[:, None], other=0.0)
    q, s = tl.quantize_i8(v)
    tl.store_block(y, m, 0, q, s, mask=m < M)


@lru_cache
def opened(name: str) -> Any:
    return open_device(name)


@pytest.fixture(params=["interpreter", "pocl", "intel", "rusticl"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    try:
        yield opened(request.param)
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["pocl", "intel"])
def cpu(request: pytest.FixtureRequest) -> Iterator[Any]:
    try:
        yield opened(request.param)
    except DeviceError as error:
        pytest.skip(str(error))


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) - 7


def test_host_arrays(device: Any) -> None:
    x, y = numbers(100), np.full(100, np.nan, np.float32)
    device.run(scaled, x=x, y=y, s=2.0)
    assert np.array_equal(y, x * 2)
    device.run(scaled, x=x, y=y, s=2.0, add=x, MODE="plus")
    assert np.array_equal(y, x + 2 + x)


def test_buffers(device: Any) -> None:
    x, y = device.array(numbers(100)), device.empty((100,), np.float32)
    for s in (2.0, 3.0, 2.0):
        device.run(scaled, x=x, y=y, s=s)
        assert np.array_equal(y.read(), numbers(100) * np.float32(s))
    other = device.array(numbers(100) + 1)
    device.run(scaled, x=other, y=y, s=2.0)
    assert np.array_equal(y.read(), (numbers(100) + 1) * 2)
    device.run(scaled, x=x, y=y, s=2.0, add=None)
    assert np.array_equal(y.read(), numbers(100) * 2)


def test_negative_zero_is_another_scalar(device: Any) -> None:
    x, y = device.array(np.ones(16, np.float32)), device.empty((16,), np.float32)
    for s in (0.0, -0.0):
        device.run(scaled, x=x, y=y, s=s)
        assert np.signbit(y.read()).all() == np.signbit(s)


def test_no_elements(device: Any) -> None:
    device.run(scaled, x=numbers(0), y=numbers(0), s=1.0)
    x, y = device.array(numbers(0)), device.empty((0,), np.float32)
    device.run(scaled, x=x, y=y, s=1.0)
    assert y.read().shape == (0,)


def test_configs_change_no_bit(device: Any) -> None:
    x = numbers(1000) / 3
    y = [np.zeros(1000, np.float32) for _ in range(2)]
    device.run(scaled, Config({"BLOCK": 16}), x=x, y=y[0], s=0.1)
    device.run(scaled, Config({"BLOCK": 64}), x=x, y=y[1], s=0.1)
    assert np.array_equal(y[0], y[1]) and np.array_equal(y[0], x * np.float32(0.1))


def test_quantised_arguments(device: Any) -> None:
    if device.name == "rusticl":
        pytest.skip("the compiler takes long for int8 products")
    rng = np.random.default_rng(0)
    w, x = (
        Q8.quantize(rng.random((20, 64), np.float32)),
        A8.quantize(rng.random((2, 64), np.float32)),
    )
    want = np.zeros((2, 20), np.float32)
    opened("interpreter").run(product, w=w, x=x, y=want)
    got = np.zeros((2, 20), np.float32)
    device.run(product, w=w, x=x, y=got)
    assert np.array_equal(got, want)
    held = device.activations(2, 64)
    held.write(x)
    y = device.empty((2, 20), np.float32)
    device.run(product, w=device.weights(w), x=held, y=y)
    assert np.array_equal(y.read(), want)


def test_written_activations_come_back(device: Any) -> None:
    x, y = numbers(3, 32), A8.empty(3, 32)
    device.run(blocks, x=x, y=y)
    want = A8.quantize(x)
    assert np.array_equal(y.q, want.q) and np.array_equal(y.scale, want.scale)
    assert np.array_equal(y.sums, want.sums)


def test_a_plan_replays_with_new_contents(device: Any) -> None:
    x, y, z = (device.array(numbers(64)) for _ in range(3))
    with device.plan() as plan:
        device.run(scaled, x=x, y=y, s=2.0)
        device.run(scaled, x=y, y=z, s=3.0)
    assert len(plan) == 2 and np.array_equal(z.read(), numbers(64))
    for shift in (0, 5):
        x.write(numbers(64) + shift)
        plan.run()
        device.finish()
        assert np.array_equal(z.read(), (numbers(64) + shift) * 6)


def test_a_plan_keeps_its_buffers(cpu: Any) -> None:
    z = cpu.empty((64,), np.float32)
    with cpu.plan() as plan:
        cpu.run(scaled, x=cpu.array(numbers(64)), y=z, s=2.0)
    plan.run()
    assert np.array_equal(z.read(), numbers(64) * 2)


def test_a_plan_refuses_to_run_on_a_released_buffer(cpu: Any) -> None:
    x, y = cpu.array(np.ones(64, np.float32)), cpu.empty((64,), np.float32)
    with cpu.plan() as plan:
        cpu.run(scaled, x=x, y=y, s=2.0)
    x.release()
    with pytest.raises(DeviceError, match="was released"):
        plan.run()


def test_a_plan_takes_no_host_arrays(cpu: Any) -> None:
    with cpu.plan(), pytest.raises(DeviceError, match="not host arrays"):
        cpu.run(scaled, x=numbers(4), y=numbers(4), s=1.0)


def test_a_profile_has_every_launch(device: Any) -> None:
    x, y = device.array(numbers(64)), device.empty((64,), np.float32)
    with device.profile() as profile:
        for _ in range(3):
            device.run(scaled, x=x, y=y, s=2.0)
    (total,) = profile.totals()
    assert total.count == 3 and total.seconds > 0 and scaled.name in total.name


@pytest.mark.parametrize("name", ["interpreter", "intel", "pocl", "rusticl"])
def test_the_times_of_a_profile_are_of_a_clock_that_runs(name: str) -> None:
    """llvmpipe's events count events: every command took a nanosecond."""
    try:
        device = open_device(name)
    except DeviceError as error:
        pytest.skip(str(error))
    x, y = device.array(numbers(1 << 20)), device.empty((1 << 20,), np.float32)
    with device.plan() as plan:
        device.run(scaled, x=x, y=y, s=2.0)
    with device.profile() as profile:
        device.run(scaled, x=x, y=y, s=2.0)
        plan.run()
    assert len(profile.timings()) == 2
    assert all(timing.seconds > 1e-5 for timing in profile.timings())


def test_wrong_arguments(device: Any) -> None:
    x, y = numbers(64), numbers(64)
    with pytest.raises(LaunchError, match="axis 0 of `y` is 32"):
        device.run(scaled, x=x, y=y[:32], s=1.0)
    with pytest.raises(LaunchError, match="not contiguous"):
        device.run(scaled, x=numbers(128)[::2], y=y, s=1.0)
    with pytest.raises(LaunchError, match="missing"):
        device.run(scaled, x=x, y=y)
    with pytest.raises(LaunchError, match="not an array"):
        device.run(scaled, x=[1.0], y=y, s=1.0)
    with pytest.raises(LaunchError, match="shares memory"):
        device.run(scaled, x=x, y=x, s=1.0)
    with pytest.raises(CompileError, match="MODE"):
        device.run(scaled, x=x, y=y, s=1.0, MODE="minus")


def test_sharing_is_seen_in_known_shapes_too(device: Any) -> None:
    if device.name == "interpreter":
        pytest.skip("binds every call")
    x, y = device.array(numbers(64)), device.empty((64,), np.float32)
    device.run(scaled, x=x, y=y, s=1.0)
    with pytest.raises(LaunchError, match="shares memory"):
        device.run(scaled, x=y, y=y, s=1.0)
    whole = device.array(numbers(1024))
    device.run(scaled, x=whole.part(0, 512), y=whole.part(512, 1024), s=2.0)
    assert np.array_equal(whole.read()[512:], numbers(1024)[:512] * 2)
    with pytest.raises(LaunchError, match="shares memory"):
        device.run(scaled, x=whole.part(0, 512), y=whole.part(256, 768), s=2.0)


def test_buffers_of_another_device_are_refused() -> None:
    with open_device("pocl") as one, open_device("pocl") as two:
        y = one.empty((64,), np.float32)
        with pytest.raises(DeviceError, match="`x` is not a buffer of pocl"):
            one.run(scaled, x=two.array(numbers(64)), y=y, s=1.0)


def test_weights_in_another_layout_are_refused(cpu: Any) -> None:
    w = Q8.quantize(np.ones((20, 64), np.float32))
    other = Config(lanes=4, dot="emulated")
    packed = cpu.weights(w, config=other)
    x, y = cpu.activations(2, 64), cpu.empty((2, 20), np.float32)
    cpu.run(product, other, w=packed, x=x, y=y)
    with pytest.raises(DeviceError, match="`w` is packed for"):
        cpu.run(product, w=packed, x=x, y=y)


def test_ir_and_source(cpu: Any) -> None:
    assert cpu.ir(scaled, MODE="plus").constants["MODE"] == "plus"
    source = cpu.source(scaled)
    assert "__kernel" in source and "scaled" in source
    for target in cpu.targets():
        assert target.kind in cpu.program(scaled, target=target).target.kind


def program(cpu: Any, body: str, local: int = 1, **changes: Any) -> Program:
    entry = Entry(
        "k",
        (Argument("buffer", "x"), Argument("scalar", "n", "i32")),
        (("const", 1), ("const", 1), ("const", 1)),
        (local, 1, 1),
    )
    source = f'#line 40 "my_kernel.py"\n__kernel void k(__global float *x, int n) {{ {body} }}\n'
    return Program(source, ("-cl-std=CL1.2",), (entry,), cpu.target, Config())


def test_a_build_error_points_at_the_kernels_file(cpu: Any) -> None:
    with pytest.raises(
        BuildError, match=r"refused k:\n.*my_kernel\.py:40:\d+: .*nonsense"
    ) as error:
        cpu.build(program(cpu, "x[0] = nonsense;"))
    assert "nonsense" in error.value.log


def test_a_group_that_is_too_large_is_refused(cpu: Any) -> None:
    with pytest.raises(LimitError, match="work-groups of 1000000"):
        cpu.build(program(cpu, "x[0] = 1;", local=10**6))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("dot", DOT_LOWERINGS)
def test_vectors_and_dots_of_a_config_work_or_are_refused(cpu: Any, lanes: int, dot: str) -> None:
    rng = np.random.default_rng(3)
    w = Q8.quantize(rng.random((16, 64), np.float32))
    x = A8.quantize(rng.random((2, 64), np.float32))
    want, got = np.zeros((2, 16), np.float32), np.zeros((2, 16), np.float32)
    opened("interpreter").run(product, w=w, x=x, y=want)
    try:
        cpu.run(product, w=w, x=x, y=got, config=Config(lanes=lanes, dot=dot))
    except LimitError as error:
        assert str(error).startswith((f"lanes={lanes}: vectors of 8 lanes", f"dot={dot} does not"))
    else:
        assert np.array_equal(got.view(np.int32), want.view(np.int32))


def test_a_device_that_does_not_answer_is_lost() -> None:
    with open_device("pocl", timeout=30) as cpu:
        body = "float s = x[0]; for (int i = 0; i < n; i++) s = s * 0.5f + 1; x[0] = s;"
        made = program(cpu, body)
        kernel = cpu.build(made).kernel(made.entries[0])
        memory = cpu.array(np.ones(1, np.float32)).memory
        kernel.set_arg(0, memory)
        kernel.set_arg(1, np.int32(10**9))
        cpu.queue.enqueue(kernel, (1, 1, 1), (1, 1, 1), "k")
        with pytest.raises(DeviceLost, match="no answer within 0.1 s"):
            cpu.finish(timeout=0.1)
        with pytest.raises(DeviceLost, match="Open it again"):
            cpu.run(scaled, x=numbers(8), y=numbers(8), s=1.0)
