"""The program cache with real compilers: cold starts together, damage, driver updates."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.dsl import kernel, tl
from ferro.runtime import DeviceError, building, open_device
from ferro.runtime.cache import ProgramCache

pytestmark = pytest.mark.device
ROOT = Path(__file__).parents[2]


@kernel
def doubled(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N]):
    n = tl.block(0, N, 16)
    tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)


@pytest.fixture(params=["pocl", "intel"])
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    try:
        open_device(request.param).close()
    except DeviceError as error:
        pytest.skip(str(error))
    yield request.param


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The source of every program that a compiler was asked for."""
    made: list[str] = []
    original = building.from_source

    def counted(context: Any, device: Any, program: Any, *further: Any) -> building.Built:
        made.append(program.source)
        return original(context, device, program, *further)

    monkeypatch.setattr(building, "from_source", counted)
    return made


def run(name: str, folder: Path, **info: str) -> None:
    """One launch on a newly opened device, with other facts about it if given."""
    with open_device(name) as device:
        device.cache = ProgramCache(folder)
        assert device.target  # probed as what it is
        device.info = replace(device.info, **info)
        x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
        device.run(doubled, x=x, y=y)
        assert np.array_equal(y, 2 * x)


def test_the_second_start_compiles_nothing(name: str, tmp_path: Path, builds: list[str]) -> None:
    run(name, tmp_path)
    run(name, tmp_path)
    assert len(builds) == 1
    (entry,) = ProgramCache(tmp_path).entries("doubled")
    assert entry.reason == "never built before"


def test_a_damaged_entry_is_built_again(name: str, tmp_path: Path, builds: list[str]) -> None:
    run(name, tmp_path)
    (path,) = tmp_path.glob("*.program")
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    run(name, tmp_path)
    run(name, tmp_path)
    assert len(builds) == 2


def test_a_binary_that_the_driver_refuses_is_built_again(
    name: str, tmp_path: Path, builds: list[str]
) -> None:
    run(name, tmp_path)
    cache = ProgramCache(tmp_path)
    (entry,) = cache.entries()
    loaded = cache.load("doubled", entry.parts)
    assert loaded is not None
    cache.store("doubled", entry.parts, loaded[0], b"not a binary")
    run(name, tmp_path)
    run(name, tmp_path)
    assert len(builds) == 2


def test_a_driver_update_is_seen_and_named(name: str, tmp_path: Path, builds: list[str]) -> None:
    run(name, tmp_path)
    run(name, tmp_path, driver="99.1")
    assert len(builds) == 2
    reason = ProgramCache(tmp_path).why("doubled")[0].reason
    assert reason.startswith("driver: ") and reason.endswith(" -> 99.1")


def test_a_read_only_folder_fails_no_run(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    run(name, blocked / "programs")
    assert "programs are not kept" in caplog.text


@pytest.mark.slow
def test_eight_processes_start_cold_together(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tests.device.test_runtime_cache import run\n"
        "run('intel', Path(sys.argv[2]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(ROOT), str(tmp_path)]
    children = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(8)
    ]
    errors = [child.communicate(timeout=100)[1].decode() for child in children]
    if any("NoSuchDevice" in error for error in errors):
        pytest.skip("Intel's runtime is not installed")
    assert [child.returncode for child in children] == [0] * 8, errors
    assert len(list(ProgramCache(tmp_path).entries("doubled"))) == 1
    assert all(path.suffix == ".program" for path in tmp_path.iterdir())
