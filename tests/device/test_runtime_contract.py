"""What every device keeps alike: how calls are written, what buffers and plans refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ferro.codegen.program import Config, Target
from ferro.dsl import CompileError, kernel, tl
from ferro.dsl.launch import LaunchError
from ferro.dsl.quantised import A8, Q8
from ferro.runtime import CallError, DeviceError, OutOfMemory, open_device

pytestmark = pytest.mark.device


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


@pytest.fixture(params=["interpreter", "pocl", "intel"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    try:
        opened = open_device(request.param)
    except DeviceError as error:
        pytest.skip(str(error))
    with opened:
        yield opened


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) - 7


# --------------------------------------------------------------------------- how a call is written


@pytest.mark.parametrize(
    "write",
    [
        lambda d, x, y: d.run(scaled, x, y, 2.0),
        lambda d, x, y: d.run(scaled, x, y, s=2.0),
        lambda d, x, y: d.run(scaled, x, y, 2.0, None, "times", 16),
        lambda d, x, y: d.run(scaled, Config({"BLOCK": 16}), x, y, 2.0),
        lambda d, x, y: d.run(scaled, Config({"BLOCK": 16}), d.targets()[-1], x, y, 2.0),
        lambda d, x, y: d.run(scaled, None, "simd", x, y, 2.0),
        lambda d, x, y: d.run(scaled, d.target, x=x, y=y, s=2.0),
        lambda d, x, y: d.run(scaled, {"BLOCK": 16}, x, y, 2.0),
        lambda d, x, y: d.run(scaled, x, y, 2.0, config={"BLOCK": 16}),
        lambda d, x, y: d.run(scaled, x, y, 2.0, target="simt"),
        lambda d, x, y: d.run(scaled, x, y, np.float32(2.0), target="simd-8-emulated"),
        lambda d, x, y: d.run(d.ir(scaled), x=x, y=y, s=2),
    ],
)
def test_ways_to_write_a_call(device: Any, write: Callable[[Any, Any, Any], None]) -> None:
    x, y = numbers(100), np.zeros(100, np.float32)
    write(device, x, y)
    assert np.array_equal(y, x * 2)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda d, x: d.run(scaled, x, x, 1.0, config="BLOCK=16"), "`config` is a str: a schedule"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config=16), "`config` is a int: a schedule"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config={"BLOCK": "16"}), "constant 'BLOCK' is '16'"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config={3: 16}), "constant 3 is 16"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config={"BLOCK": [1]}), "maps names to whole"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config=Config(3)), "constants are a int"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config=Config(lanes="8")), "lanes are '8'"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config=Config(split=None)), "split is None"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config=Config(lane_axis="n")), "lane_axis is 'n'"),
        (lambda d, x: d.run(scaled, x, x, 1.0, config=Config(dot=3)), "dot is 3"),
        (lambda d, x: d.run(scaled, {}, x, x, 1.0, config={"BLOCK": 16}), "`config` is given by"),
        (lambda d, x: d.run(scaled, x, x, 1.0, BLOCK=16, config={"BLOCK": 16}), "`BLOCK` is given"),
        (lambda d, x: d.run(scaled, x, x, 1.0, target="cuda"), "`cuda` is no target; one is simd"),
        (lambda d, x: d.run(scaled, x, x, 1.0, target=16), "`target` is a int: name a kind"),
        (lambda d, x: d.run(d.ir(scaled), x, x, 1.0), "arguments of an `ir.Kernel` go by name"),
        (lambda d, x: d.run("scaled", x, x, 1.0), "under @kernel is launched, not a str"),
        (lambda d, x: d.source(scaled, target="cuda"), "`cuda` is no target"),
        (lambda d, x: d.ir(3), "under @kernel is launched, not a int"),
        (lambda d, x: d.config_for(scaled, x, x, 1.0, target=3), "`target` is a int"),
    ],
)
def test_calls_that_mean_nothing_say_what_to_write(
    device: Any, write: Callable[[Any, Any], None], message: str
) -> None:
    with pytest.raises(CallError, match=message) as error:
        write(device, numbers(16))
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda d, x: d.run(scaled, x, x.copy(), 1.0, None, "times", 64, 3), "by position and got"),
        (lambda d, x: d.run(scaled, x, x.copy(), 1.0, y=x), "`y` of `scaled` is given twice"),
        (lambda d, x: d.run(scaled, x, x.copy(), "2"), "`s` is a str, not a number"),
        (lambda d, x: d.run(scaled, x, x.copy(), [2.0]), "`s` is a list, not a number"),
        (lambda d, x: d.run(scaled, [1.0], d.array(x), 1.0), "`x` is a list, not an array"),
        (lambda d, x: d.run(scaled, np.ma.array(x), x.copy(), 1.0), "`x` is a masked array"),
        (lambda d, x: d.run(scaled, x.astype(">f4"), x.copy(), 1.0), "`x` must be f32 and is >f4"),
        (lambda d, x: d.run(scaled, x.astype(object), x.copy(), 1.0), "must be f32 and is object"),
        (lambda d, x: d.run(scaled, x, x.copy(), 1.0, MODE=3), "MODE"),
        (lambda d, x: d.run(scaled, x, x.copy(), 1.0, MODE=[3]), "MODE"),
        (lambda d, x: d.run(scaled, x, x.copy(), 1.0, config={"OTHER": 16}), "OTHER"),
        (lambda d, x: d.run(scaled, x, x.copy(), 1.0, config={"BLOCK": 17}), "BLOCK"),
    ],
)
def test_arguments_that_do_not_fit_are_placed_in_the_kernel(
    device: Any, write: Callable[[Any, Any], None], message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        write(device, numbers(16))


def test_equal_mappings_are_one_launch(device: Any) -> None:
    x, y = device.array(numbers(16)), device.empty(16, np.float32)
    for _ in range(3):
        device.run(scaled, {"BLOCK": 16}, x, y, 2.0)
    assert np.array_equal(y.read(), numbers(16) * 2)
    launcher = getattr(device, "launcher", None)
    assert launcher is None or len(launcher._launches) == 1


# ------------------------------------------------------------------------------ buffers are alike


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.empty((-1,), np.float32), r"a shape is whole numbers from 0 on.*\(-1,\)"),
        (lambda d: d.zeros((2, -3), np.float32), "a shape is whole numbers"),
        (lambda d: d.empty((2.0,), np.float32), "a shape is whole numbers"),
        (lambda d: d.empty(None, np.float32), "a shape is whole numbers"),
        (lambda d: d.empty("34", np.float32), "a shape is whole numbers"),
        (lambda d: d.empty((3,), object), "elements of object, kernels have float32"),
        (lambda d: d.empty((3,), np.float64), "elements of float64"),
        (lambda d: d.zeros((3,), bool), "elements of bool"),
        (lambda d: d.empty((3,), ">f4"), "elements of >f4"),
        (lambda d: d.empty((3,), "floaty"), "'floaty' is no numpy dtype"),
        (lambda d: d.array(np.ones(3)), "elements of float64.*astype"),
        (lambda d: d.array(np.array([None, 1])), "elements of object"),
        (lambda d: d.array(["a"]), "elements of <U1"),
        (lambda d: d.array(np.ma.array(numbers(3), mask=[0, 1, 0])), "masked array.*filled"),
        (lambda d: d.empty((3,), np.float32, "junk"), "`junk` is no purpose, one of weights"),
        (lambda d: d.weights(numbers(4, 32)), "weights are a Q8 or a Q4 matrix, not a ndarray"),
        (lambda d: d.weights(Q8.quantize(numbers(4, 32)), target="cuda"), "is no target"),
        (lambda d: d.weights(Q8.quantize(numbers(4, 32)), config="x"), "`config` is a str"),
        (lambda d: d.activations(-1, 32), "a shape is whole numbers"),
        (lambda d: d.activations(2.5, 32), "a shape is whole numbers"),
    ],
)
def test_buffers_that_cannot_be(device: Any, make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(CallError, match=message):
        make(device)
    assert not any(device.memory().values())


@pytest.mark.parametrize(
    "make",
    [
        lambda d: d.empty((1 << 42,), np.uint8, "kv"),
        lambda d: d.zeros((1 << 40,), np.float32, "kv"),
        lambda d: d.activations(1 << 30, 1 << 12, "kv"),
    ],
)
def test_what_does_not_fit_is_out_of_memory(device: Any, make: Callable[[Any], Any]) -> None:
    with pytest.raises(OutOfMemory, match=r"no room for .* MiB of kv") as error:
        make(device)
    assert error.value.exit_code == 3 and device.memory()["kv"] == 0


def test_a_buffer_is_a_copy(device: Any) -> None:
    x = numbers(64)
    w, a = Q8.quantize(numbers(2, 32)), A8.quantize(numbers(2, 32))
    held, weights, activations = device.array(x), device.weights(w), device.activations(2, 32)
    activations.write(a)
    x[:] = 0
    a.q[:] = 0
    assert np.array_equal(held.read(), numbers(64)) and activations.read().q.any()
    held.read()[:] = 0
    activations.read().q[:] = 0
    assert np.array_equal(held.read(), numbers(64)) and activations.read().q.any()
    with pytest.raises(DeviceError, match="not read back"):
        weights.read()


def test_parts_and_shapes_share_memory(device: Any) -> None:
    x = device.array(numbers(4, 64))
    x.part(2, 4).write(np.zeros((2, 64), np.float32))
    assert x.read()[:2].any() and not x.read()[2:].any()
    flat = x.reshape(256)
    assert flat.shape == x.reshape((256,)).shape == (256,)
    flat.write(np.ones(256, np.float32))
    assert (
        x.read().all() and x.part(0, 2).overlaps(flat) and not x.part(0, 2).overlaps(x.part(2, 4))
    )
    with pytest.raises(LaunchError, match="shares memory"):
        device.run(scaled, x.reshape(256), flat, 1.0)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: x.part(3, 5), "no part of"),
        (lambda x: x.part(-1, 1), "no part of"),
        (lambda x: x.part(0.0, 1), "whole numbers"),
        (lambda x: x.reshape(3), "cannot have shape"),
        (lambda x: x.reshape(-1), "whole numbers from 0"),
        (lambda x: x.write(np.ones((4, 64))), "float64.* does not match"),
        (lambda x: x.write(numbers(64)), "does not match"),
        (lambda x: x.write(3), "does not match"),
        (lambda x: x.write(np.ma.array(numbers(4, 64))), "masked array"),
        (lambda x: x.read_into(numbers(64, 4).T), "must be contiguous"),
        (lambda x: x.read_into(numbers(4, 128)[:, ::2]), "must be contiguous"),
        (lambda x: x.read_into(np.zeros((4, 64))), "does not match"),
        (lambda x: x.read_into(np.ma.array(numbers(4, 64))), "masked array"),
        (lambda x: x.read_into([1.0]), "a numpy array is needed, not a list"),
        (lambda x: x.read_into(np.broadcast_to(np.float32(1), (4, 64))), "contiguous|read-only"),
        (lambda x: x.read_into(_read_only(numbers(4, 64))), "read-only"),
    ],
)
def test_uses_that_do_not_fit(device: Any, use: Callable[[Any], Any], message: str) -> None:
    x = device.array(numbers(4, 64))
    with pytest.raises(DeviceError, match=message):
        use(x)
    assert np.array_equal(x.read(), numbers(4, 64))


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


USES: list[Callable[[Any, Any, Any], Any]] = [
    lambda d, x, y: x.read(),
    lambda d, x, y: x.read_into(numbers(4, 64)),
    lambda d, x, y: x.write(numbers(4, 64)),
    lambda d, x, y: x.part(0, 2).read(),
    lambda d, x, y: x.reshape(256).read(),
    lambda d, x, y: d.run(scaled, x.reshape(256), y, 1.0),
]


@pytest.mark.parametrize("use", USES)
def test_a_released_buffer_is_of_no_use(device: Any, use: Callable[[Any, Any, Any], Any]) -> None:
    x, y = device.array(numbers(4, 64)), device.empty(256, np.float32)
    before = device.memory()["io"]
    x.release()
    x.release()
    assert device.memory()["io"] == before - 1024
    with pytest.raises(DeviceError, match="was released"):
        use(device, x, y)


def test_parts_go_with_their_buffer(device: Any) -> None:
    x, y = device.array(numbers(4, 64)), device.empty(128, np.float32)
    part, inner = x.part(0, 2), x.part(0, 2).reshape(128)
    x.release()
    for use in (part.read, inner.read, lambda: device.run(scaled, inner, y, 1.0)):
        with pytest.raises(DeviceError, match="was released"):
            use()


def test_a_part_goes_alone(device: Any) -> None:
    x = device.array(numbers(4, 64))
    x.part(0, 2).release()
    assert np.array_equal(x.read(), numbers(4, 64)) and device.memory()["io"] == 1024


@pytest.mark.parametrize(
    "use",
    [
        *USES[:3],
        lambda d, x, y: d.run(scaled, numbers(8), numbers(8), 1.0),
        lambda d, x, y: d.run(scaled, y, y, 1.0),
        lambda d, x, y: d.empty(3, np.float32),
        lambda d, x, y: d.array(numbers(3)),
        lambda d, x, y: d.weights(Q8.quantize(numbers(4, 32))),
        lambda d, x, y: d.activations(2, 32),
        lambda d, x, y: d.plan().__enter__(),
        lambda d, x, y: d.profile().__enter__(),
        lambda d, x, y: d.finish(),
    ],
)
@pytest.mark.parametrize("name", ["interpreter", "pocl", "intel"])
def test_a_closed_device_is_of_no_use(name: str, use: Callable[[Any, Any, Any], Any]) -> None:
    try:
        device = open_device(name)
    except DeviceError as error:
        pytest.skip(str(error))
    x, y = device.array(numbers(4, 64)), device.array(numbers(8))
    device.close()
    device.close()
    with pytest.raises(DeviceError, match="was closed: open the device again"):
        use(device, x, y)


def test_buffers_of_another_device_are_refused(device: Any) -> None:
    y = device.empty(64, np.float32)
    with open_device(device.name) as twin, open_device("interpreter") as other:
        for stranger in (twin.array(numbers(64)), other.array(numbers(64))):
            with pytest.raises(DeviceError, match=f"`x` is not a buffer of {device.name}"):
                device.run(scaled, stranger, y, 1.0)


# ------------------------------------------------------------------------------- plans are alike


def test_a_plan_takes_no_host_arrays(device: Any) -> None:
    y = device.empty(4, np.float32)
    with device.plan() as plan, pytest.raises(DeviceError, match="not host arrays"):
        device.run(scaled, numbers(4), y, 1.0)
    assert len(plan) == 0


def test_a_plan_keeps_its_buffers_and_sees_releases(device: Any) -> None:
    x, y = device.array(numbers(64)), device.empty(64, np.float32)
    with device.plan() as plan:
        device.run(scaled, x, y, 2.0)
    with device.plan() as further:
        device.run(scaled, device.array(numbers(64)), y, 3.0)
    plan.run()
    assert np.array_equal(y.read(), numbers(64) * 2)
    plan.extend(further)
    plan.run()
    assert np.array_equal(y.read(), numbers(64) * 3)
    x.release()
    with pytest.raises(DeviceError, match="was released"):
        plan.run()


def test_a_plan_ends_with_its_device(device: Any) -> None:
    with open_device(device.name) as twin:
        x, y = twin.array(numbers(64)), twin.empty(64, np.float32)
        with twin.plan() as plan:
            twin.run(scaled, x, y, 2.0)
    with pytest.raises(DeviceError, match="was closed"):
        plan.run()
    with device.plan() as own, pytest.raises(DeviceError, match="different devices"):
        own.extend(plan)


def test_a_target_of_another_kind_gives_the_same(device: Any) -> None:
    results = []
    for target in ("simd", "simt", Target("simd", 8)):
        y = np.zeros(100, np.float32)
        device.run(scaled, numbers(100), y, 1 / 3, target=target)
        results.append(y)
    assert all(np.array_equal(results[0], y) for y in results)
