"""The wheel, installed into an empty environment, has all it needs and runs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("hatchling"), reason="hatchling is missing"),
]

SIMT = ("--target", "simt-16-emulated")


def call(*command: str | Path, **options: object) -> str:
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FERRO_DEVICE")}
    done = subprocess.run(
        [str(word) for word in command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    call(*pip, "--no-index", "-w", folder, ROOT)
    return next(folder.glob("ferro-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its dependencies are seen in ours, Ferro's own tree is not."""
    folder = tmp_path_factory.mktemp("installed")
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    call(*pip, "install", "--no-deps", "--no-index", wheel)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(call(python, "-c", ask).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_carries_kernels_grammar_templates_and_tables(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("ferro", "kernels_src", "autotune"):
        carried = [f for f in (ROOT / folder).rglob("*") if f.is_file()]
        expected = {f.relative_to(ROOT).as_posix() for f in carried if "__pycache__" not in f.parts}
        assert expected <= names
    assert {"ferro/dsl/grammar.lark", "ferro/py.typed", "kernels_src/matmul.py"} <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_command_lists_the_kernels_of_the_wheel(environment: Path, tmp_path: Path) -> None:
    ferro = environment / "bin" / "ferro"
    listed = json.loads(call(ferro, "kernels", "--json", cwd=tmp_path))
    paths = {Path(kernel["path"]) for kernel in listed}
    assert len(listed) > 10
    assert all(path.is_relative_to(environment.resolve()) for path in paths)


def test_kernel_of_the_wheel_runs(environment: Path, tmp_path: Path) -> None:
    ferro = environment / "bin" / "ferro"
    options = ("--device", "interpreter", "--dim", "M=2,K=40", "--json")
    result = json.loads(call(ferro, "kernels", "run", "rmsnorm", *options, cwd=tmp_path))
    assert result["equal"] is True
    assert result["sizes"] == {"M": 2, "K": 40}


def test_a_device_runs_a_kernel_of_the_wheel_from_its_templates(
    environment: Path, tmp_path: Path
) -> None:
    ferro = environment / "bin" / "ferro"
    options = ("--dim", "M=2,N=48,K=64", "--json")
    result = json.loads(call(ferro, "kernels", "run", "matmul_q8", *options, cwd=tmp_path))
    assert result["equal"] is True
    source = call(ferro, "kernels", "show", "matmul_q8", "--source", *SIMT, cwd=tmp_path)
    assert "__kernel void matmul_q8" in source and "#line" in source


def test_winners_of_the_wheel_are_found(environment: Path, tmp_path: Path) -> None:
    ask = "from ferro.runtime import configs; print(len(configs.shipped()))"
    assert int(call(environment / "bin" / "python", "-c", ask, cwd=tmp_path)) > 0


def test_stranger_s_file_runs_with_the_wheel(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from ferro.dsl import kernel, tl\n"
        "@kernel\n"
        "def double(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N], BLOCK: tl.schedule[64] = 64):\n"
        "    n = tl.block(0, N, BLOCK)\n"
        "    tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)\n"
    )
    ferro = environment / "bin" / "ferro"
    options = ("--device", "interpreter", "--dim", "N=100", "--json")
    result = json.loads(call(ferro, "kernels", "run", "mine.py:double", *options, cwd=tmp_path))
    assert result["differing"] == {"y": 0}
