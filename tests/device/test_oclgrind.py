"""oclgrind finds no access out of range and no data race in what `simt` makes of the kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ferro.catalogue import shipped
from tests.device import checked

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(shutil.which("oclgrind") is None, reason="`oclgrind` is not installed"),
]
ROOT = Path(__file__).parents[2]


def watched(*names: str) -> subprocess.CompletedProcess[str]:
    command = ["oclgrind", "--data-races", sys.executable, "-m", "tests.device.checked", *names]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=110
    )


def test_every_shipped_kernel_is_tried() -> None:
    tried = {launch.kernel.name for launch in checked.launches()}
    assert tried == {entry.name for entry in shipped()}


def test_nothing_is_reported() -> None:
    done = watched()
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines == [f"checked {launch}" for launch in checked.launches()]


@pytest.mark.parametrize(
    ("name", "complaint"), [("race", "data race"), ("range", "Invalid read of size 4")]
)
def test_what_must_be_reported_is(name: str, complaint: str) -> None:
    done = watched(name)
    assert complaint in done.stdout + done.stderr
