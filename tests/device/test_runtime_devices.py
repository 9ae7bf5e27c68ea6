"""Devices of this machine, found and opened in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ferro.runtime import vendors

pytestmark = pytest.mark.device
ROOT = Path(__file__).parents[2]
SETTINGS = (
    "OCL_ICD_VENDORS",
    "RUSTICL_ENABLE",
    "POCL_CACHE_DIR",
    "POCL_KERNEL_CACHE",
    "FERRO_DEVICE",
    "FERRO_THREADS",
    *vendors.THREADS,
)


def python(program: str, launcher: tuple[str, ...] = (), **environment: str) -> Any:
    """What ``program`` prints as JSON on its last line, started without any OpenCL setting."""
    clean = {n: v for n, v in os.environ.items() if n not in SETTINGS}
    found = subprocess.run(
        [*launcher, sys.executable, "-c", program],
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


LIST = """
import json
from ferro.runtime import devices
print(json.dumps([info.alias for info in devices()]))
"""


def installed() -> set[str]:
    names = {"pocl"} if vendors.pocl_installed() and vendors.linker() else set()
    return names | ({"intel"} if vendors.intel_library() else set())


def test_pips_runtimes_are_found_without_settings() -> None:
    found = python(LIST)
    assert installed() <= set(found) and found[-1] == "interpreter"


def test_the_users_folder_hides_none_of_pips(tmp_path: Path) -> None:
    assert installed() <= set(python(LIST, OCL_ICD_VENDORS=str(tmp_path)))


@pytest.mark.skipif("pocl" not in installed(), reason="PoCL or its linker is not installed")
def test_without_a_linker_pocl_is_not_offered(tmp_path: Path) -> None:
    assert "pocl" not in python(LIST, PATH=str(tmp_path))


def test_rusticl_is_offered_by_name() -> None:
    if not Path("/etc/OpenCL/vendors/rusticl.icd").exists():
        pytest.skip("mesa-opencl-icd is not installed")
    program = """
import json
from ferro.runtime import open_device
device = open_device("rusticl")
print(json.dumps([device.name, device.target.kind]))
"""
    assert python(program) == ["rusticl", "simt"]


THREADS = """
import json, time
import numpy as np
from ferro.codegen.program import Argument, Config, Entry, Program
from ferro.runtime import open_device
from ferro.runtime.plan import Step
device = open_device(NAME, threads=COUNT)
arguments = (Argument("buffer", "x"), Argument("scalar", "n", "i32"))
entry = Entry("k", arguments, (("const", 64), ("const", 1), ("const", 1)), (1, 1, 1))
source = '''__kernel void k(__global float *x, int n) {
    float s = x[get_global_id(0)];
    for (int i = 0; i < n; i++) s = s * 0.5f + 1;
    x[get_global_id(0)] = s;
}'''
kernel = device.build(Program(source, (), (entry,), device.target, Config())).kernel(entry)
x = device.array(np.ones(64, np.float32))
kernel.set_arg(0, x.memory)
kernel.set_arg(1, np.int32(2_000_000))
device.finish()
wall, used = time.perf_counter(), time.process_time()
device.queue.enqueue(kernel, (64, 1, 1), (1, 1, 1), "k")
device.finish()
print(json.dumps((time.process_time() - used) / (time.perf_counter() - wall)))
"""


@pytest.mark.parametrize("name", ["pocl", "intel"])
def test_one_thread_is_one_processor_at_most(name: str) -> None:
    if name not in installed():
        pytest.skip(f"{name} is not installed")
    program = THREADS.replace("NAME", repr(name))
    assert python(program.replace("COUNT", "1")) < 1.25


@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")
def test_inside_oclgrind_it_is_the_device() -> None:
    program = """
import json
import numpy as np
from ferro.runtime import open_device
device = open_device()
x = device.array(np.arange(10, dtype=np.float32))
print(json.dumps([device.name, device.target.kind, float(x.read().sum())]))
"""
    assert python(program, ("oclgrind", "--data-races")) == ["oclgrind", "simt", 45.0]


def test_probes_agree_with_this_process() -> None:
    """Every dot lowering that was found to work gives the same answers in this process."""
    program = """
import json
from ferro.runtime import devices
from ferro.runtime.listing import opencl_devices
from ferro.runtime.probes import findings, run_probe
wrong = []
for info, raw in zip(devices(), opencl_devices()):
    found = findings(info)
    assert found.exact, info
    for name in ("emulated", "dp4a", "avx2"):
        if found.works(name) and run_probe(raw, name):
            wrong.append([str(info), name])
print(json.dumps(wrong))
"""
    assert python(program) == []
