"""The interpreter as a device."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from ferro.codegen.errors import ConfigError
from ferro.codegen.program import Config
from ferro.dsl import CompileError, kernel, tl
from ferro.dsl.quantised import A8, Q8
from ferro.runtime import DeviceError, OutOfMemory, host, open_device
from ferro.runtime.host import InterpreterDevice


@kernel
def shifted(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N], s: tl.f32, B: tl.schedule[16, 32] = 16):
    n = tl.block(0, N, B)
    tl.store(y[n], tl.load(x[n], mask=n < N) + s, mask=n < N)


@pytest.fixture
def device() -> InterpreterDevice:
    found = open_device("interpreter")
    assert isinstance(found, InterpreterDevice)
    return found


def test_orders_and_configs_give_the_same(device: InterpreterDevice) -> None:
    x = np.arange(100, dtype=np.float32)
    for options in ({}, {"order": "one_by_one", "seed": 3}, {"config": Config({"B": 32})}):
        y = np.zeros(100, np.float32)
        device.run(shifted, x=x, y=y, s=1.0, **options)
        assert np.array_equal(y, x + 1)


@kernel
def rows_reversed(x: tl.ptr[tl.f32, M, D], y: tl.out[tl.f32, M, D], D: tl.const):
    row = tl.program_id(0, M)
    k = tl.arange(0, D)
    tl.store(y[row, D - 1 - k], tl.load(x[row, k]))


def test_a_constexpr_that_is_an_extent_need_not_be_given(device: InterpreterDevice) -> None:
    for size in (8, 5):
        x = np.arange(3.0 * size, dtype=np.float32).reshape(3, size)
        y = np.zeros_like(x)
        device.run(rows_reversed, x=x, y=y)
        assert np.array_equal(y, x[:, ::-1])
    with pytest.raises(CompileError, match="FER607"):
        device.run(rows_reversed, x=x, y=y, D=4)


@kernel
def past_the_end(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N]):
    n = tl.arange(0, 32)
    tl.store(y[n], tl.load(x[n], mask=n < N), mask=n < N + 1)


def test_what_a_device_would_refuse_is_refused(device: InterpreterDevice) -> None:
    x, y = np.ones(40, np.float32), np.zeros(40, np.float32)
    device.run(past_the_end, x=x, y=y)
    with pytest.raises(CompileError, match="FER701"):
        device.run(past_the_end, x=x[:20], y=y[:20])


def test_a_call_in_another_style_is_told_how(device: InterpreterDevice) -> None:
    with pytest.raises(TypeError, match="under @kernel is launched, not a function"):
        device.run(lambda: None, x=np.ones(20, np.float32))
    with pytest.raises(TypeError, match=r"no grid: it follows from `tl\.program_id"):
        shifted[(1,)]


def test_the_ir_prints_as_text(device: InterpreterDevice) -> None:
    made = device.ir(shifted)
    assert str(made).startswith("kernel shifted(\n    x: in f32[N],")
    assert repr(made) == "<IR of kernel shifted>"


def test_the_account_follows_buffers(device: InterpreterDevice) -> None:
    weights = device.weights(Q8.quantize(np.ones((2, 32), np.float32)))
    cache = device.empty((10,), np.float32, "kv")
    assert device.memory()["weights"] == weights.nbytes == 68 and device.memory()["kv"] == 40
    del weights, cache
    gc.collect()
    assert sum(device.memory().values()) == 0


def test_activations_are_written_and_read(device: InterpreterDevice) -> None:
    given = A8.quantize(np.arange(64, dtype=np.float32).reshape(2, 32))
    held = device.activations(2, 32)
    held.write(given)
    assert np.array_equal(held.read().q, given.q)
    with pytest.raises(DeviceError, match="cannot have shape"):
        held.reshape(64)
    with pytest.raises(DeviceError, match="a8 of shape"):
        held.write(A8.empty(3, 32))


def test_plans_replay(device: InterpreterDevice) -> None:
    x, y = device.zeros((8,), np.float32), device.zeros((8,), np.float32)
    with device.plan() as plan:
        device.run(shifted, x=x, y=y, s=2.0)
        with pytest.raises(DeviceError, match="already"), device.plan():
            pass
    assert len(plan) == 1 and not y.read().any()
    x.write(np.full(8, 5, np.float32))
    plan.run()
    assert (y.read() == 7).all()


def test_profiles_and_sources(device: InterpreterDevice) -> None:
    x = np.ones(8, np.float32)
    with device.profile() as profile:
        device.run(shifted, x=x, y=np.zeros(8, np.float32), s=1.0)
    (total,) = profile.totals()
    assert total.name == "shifted" and total.count == 1 and total.seconds > 0
    assert "__kernel" in device.source(shifted, target="simt")
    assert device.ir(shifted).name == "shifted"


def test_a_source_needs_a_target_that_is_named(device: InterpreterDevice) -> None:
    with pytest.raises(DeviceError, match=r"no OpenCL C: name a target, such as target='simd-16"):
        device.source(shifted)
    assert device.program(shifted, target="simd-8-emulated").target.lanes == 8


def test_what_the_interpreter_cannot_hold_is_out_of_memory(
    device: InterpreterDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 8.00 TiB")

    monkeypatch.setattr(host, "interpret", full)
    x = np.ones(20, np.float32)
    with pytest.raises(OutOfMemory, match="`shifted` does not fit.*8.00 TiB") as error:
        device.run(shifted, x, np.zeros_like(x), 1.0)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "backwards"}, "`order` is 'backwards', not one of together, one_by_one"),
        ({"seed": -1}, "`seed` is -1, not a whole number from 0 on"),
        ({"seed": "x"}, "`seed` is 'x'"),
        ({"config": Config(lanes=7)}, "lanes=7: expected 2, 4, 8"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    device: InterpreterDevice, options: dict[str, Any], message: str
) -> None:
    x, y = np.ones(20, np.float32), np.zeros(20, np.float32)
    with pytest.raises((DeviceError, ConfigError), match=message):
        device.run(shifted, x, y, 1.0, **options)
    assert not y.any()


def test_config_for_tells_what_a_launch_takes(
    device: InterpreterDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Config({"B": 32})
    monkeypatch.setattr(device, "chooser", lambda *_: chosen)
    x, y = np.ones(20, np.float32), np.zeros(20, np.float32)
    assert device.config_for(shifted, x, y, 1.0) == chosen
    assert device.config_for(shifted, x, y, 1.0, B=16) == Config()
