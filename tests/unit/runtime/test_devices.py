"""Names of devices, the order of preference, and the interpreter without any OpenCL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ferro.runtime import NoSuchDevice, devices, listing, open_device
from ferro.runtime import devices as exported
from ferro.runtime.devices import find
from ferro.runtime.errors import CallError
from ferro.runtime.listing import DeviceInfo, interpreter_info

assert exported is devices
ROOT = Path(__file__).parents[3]

INTEL = DeviceInfo(0, "intel", "Intel(R) Xeon(R)", "Intel(R) OpenCL", "3.1", "2026", "cpu")
POCL = DeviceInfo(1, "pocl", "pthread-Xeon", "Portable Computing Language", "3.0", "3.0", "cpu")
GPU = DeviceInfo(2, "rusticl", "Intel UHD (ADL-N)", "rusticl", "3.0", "25.0", "gpu")
GPU2 = DeviceInfo(3, "intel-gpu", "Intel UHD", "Intel OpenCL Graphics", "3.0", "25.1", "gpu")
SOFTWARE = DeviceInfo(2, "rusticl", "llvmpipe", "rusticl", "3.0", "22.3", "cpu")


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[DeviceInfo]:
    listed: list[DeviceInfo] = []

    def fake(rusticl: bool = False) -> list[DeviceInfo]:
        return [*listed, interpreter_info(len(listed))]

    monkeypatch.setattr(sys.modules["ferro.runtime.devices"], "devices", fake)
    return listed


@pytest.mark.parametrize(
    ("listed", "best"),
    [
        ([INTEL, POCL, GPU], GPU),
        ([INTEL, POCL], INTEL),
        ([POCL, SOFTWARE], POCL),
        ([SOFTWARE], SOFTWARE),
    ],
)
def test_the_best_device_is_the_default(
    offered: list[DeviceInfo], listed: list[DeviceInfo], best: DeviceInfo
) -> None:
    offered += listed
    assert find() is best


def test_without_devices_the_interpreter_serves(offered: list[DeviceInfo]) -> None:
    assert find().kind == "interpreter"


@pytest.mark.parametrize(
    ("name", "index"),
    [("pocl", 1), ("intel", 0), ("1", 1), ("xeon(r)", 0), ("ADL-N", 2), ("Portable", 1), ("4", 4)],
)
def test_names(offered: list[DeviceInfo], name: str, index: int) -> None:
    offered += [INTEL, POCL, GPU, GPU2]
    assert find(name).index == index


def test_an_ambiguous_name_lists_its_devices(offered: list[DeviceInfo]) -> None:
    offered += [INTEL, POCL, GPU, GPU2]
    with pytest.raises(NoSuchDevice, match="several devices") as error:
        find("UHD")
    assert "ADL-N" in str(error.value) and "pocl" not in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name", ["nvidia", "9", "-1"])
def test_an_unknown_name_lists_all(offered: list[DeviceInfo], name: str) -> None:
    offered += [INTEL, POCL]
    with pytest.raises(NoSuchDevice, match=f"no device `{name}`") as error:
        find(name)
    assert "0: intel" in str(error.value) and "2: interpreter" in str(error.value)


def test_the_environment_names_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_DEVICE", "interpreter")
    assert open_device().info.kind == "interpreter"


def test_threads_from_the_environment_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("many", "0", "-1", "1.5"):
        monkeypatch.setenv("FERRO_THREADS", text)
        for name in ("pocl", "interpreter"):
            with pytest.raises(CallError, match=f"FERRO_THREADS .* not '{text}'") as error:
                open_device(name)
            assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 1.5}, "by name or index, not by a float"),
        ({"timeout": 0}, "`timeout` is seconds above 0, not 0"),
        ({"timeout": "long"}, "`timeout` is seconds above 0, not 'long'"),
        ({"name": "pocl", "threads": "2"}, "threads must be at least 1, not '2'"),
        ({"name": "pocl", "threads": -2}, "threads must be at least 1, not -2"),
    ],
)
def test_options_of_a_wrong_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CallError, match=message):
        open_device(**options)


def test_inside_oclgrind_it_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    oclgrind = DeviceInfo(0, "oclgrind", "Oclgrind Simulator", "Oclgrind", "1.2", "21", "cpu")
    assert oclgrind.rank > INTEL.rank
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/oclgrind/liboclgrind-rt.so")
    assert oclgrind.rank < GPU.rank


def test_identity_follows_the_driver() -> None:
    newer = DeviceInfo(0, "intel", INTEL.name, INTEL.platform, INTEL.version, "2027", "cpu")
    moved = DeviceInfo(5, "intel", INTEL.name, INTEL.platform, INTEL.version, "2026", "cpu")
    assert newer.identity != INTEL.identity == moved.identity


def test_without_pyopencl_the_interpreter_is_the_default() -> None:
    """In a process in which pyopencl cannot be imported."""
    program = """
import sys
sys.modules["pyopencl"] = None
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pyopencl":
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "pyopencl" else real(name, *a)
from ferro.runtime import devices, open_device
assert [info.kind for info in devices()] == ["interpreter"], devices()
with open_device() as device:
    assert device.target.kind == "simd"
    print(device.array(__import__("numpy").ones(3, "f4")).read().sum())
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.stdout.strip() == "3.0", found.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ImportError('libOpenCL.so.1: cannot open')", "ImportError: libOpenCL.so.1"),
        ("raise RuntimeError('numpy 1 is needed')", "RuntimeError: numpy 1 is needed"),
        ("", "AttributeError: module 'pyopencl' has no attribute 'get_platforms'"),
    ],
)
def test_a_broken_pyopencl_leaves_the_interpreter_and_says_so_once(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "pyopencl").mkdir()
    (tmp_path / "pyopencl" / "__init__.py").write_text(text)
    clean = {n: v for n, v in os.environ.items() if n not in ("FERRO_DEVICE", "FERRO_THREADS")}
    environment = {**clean, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def ferro(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ferro", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, check=False
        )

    run = ferro("kernels", "run", "rmsnorm", "--dim", "M=2,K=40")
    assert run.returncode == 0 and "interpreter" in run.stdout
    assert run.stderr.count("cannot be used") == 1 and reason in run.stderr
    assert "using the interpreter" in run.stderr
    listed = ferro("devices", "--json")
    assert [d["alias"] for d in json.loads(listed.stdout)["devices"]] == ["interpreter"]
    named = ferro("kernels", "run", "rmsnorm", "--device", "pocl", "--dim", "M=2,K=40")
    assert named.returncode == 2 and reason in named.stderr
    doctor = ferro("doctor")
    assert doctor.returncode == 1
    assert f"pyopencl: is installed but cannot be used: {reason}" in doctor.stdout
    assert "fix: pip install --force-reinstall 'pyopencl[pocl]'" in doctor.stdout


def test_without_a_platform_the_interpreter_serves() -> None:
    program = """
import pyopencl
def none():
    raise pyopencl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")
pyopencl.get_platforms = none
from ferro.cli import main
raise SystemExit(main(["kernels", "run", "rmsnorm", "--dim", "M=2,K=40"]))
"""
    pytest.importorskip("pyopencl")
    clean = {n: v for n, v in os.environ.items() if n not in ("FERRO_DEVICE", "FERRO_THREADS")}
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0 and "interpreter" in found.stdout
    assert found.stderr.count("using the interpreter (`ferro doctor` says why)") == 1


def test_the_host_has_a_name() -> None:
    assert listing.host_processor().strip()
