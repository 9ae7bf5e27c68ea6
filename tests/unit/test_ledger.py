"""The ledger of `make conformance`: what is left out, what is run again, what it closes with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ledger
from tests.ledger import ROOT, Ledger, reached, share, stack_of, summary, unit_of

FILE = "tests/kernels/test_quantise.py"
TEST = f"{FILE}::TestQuantise::test_reference"
PROBE = """
import pathlib

def test_right(): pass
def test_wrong(): assert pathlib.Path(__file__).with_name("mended").exists()
def test_elsewhere(): __import__("pytest").skip("not here")
"""


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3))), st.integers(1, 12))
def test_parts_are_disjoint_and_together_all(tests: list[tuple[int, int]], count: int) -> None:
    names = [f"tests/test_a.py::Test{unit}::test_bits[{n}]" for unit, n in tests]
    parts = [share(names, f"{number + 1}/{count}") for number in range(count)]
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert set().union(*parts) == set(map(unit_of, names))


@pytest.mark.parametrize(
    ("test", "stack"),
    [
        (f"{FILE}::TestQuantise::test_bits[intel-simt]", "intel-simt"),
        ("tests/device/test_operations.py::test_bits[rusticl-simt-f32-(3, 5)]", "rusticl-simt"),
        ("tests/device/test_oclgrind.py::test_a_race_is_reported", "oclgrind"),
        (TEST, "host"),
    ],
)
def test_a_test_belongs_to_a_stack(test: str, stack: str) -> None:
    assert stack_of(test) == stack


def test_what_a_file_names_is_reached() -> None:
    found = {
        str(path.relative_to(ROOT)) for path in reached(ROOT / "tests/device/test_oclgrind.py")
    }
    assert {"tests/kernels/test_softmax.py", "tests/conformance.py", "tests/stacks.py"} <= found
    assert "tests/kernels/test_snapshots.py" not in found


def test_a_result_holds_while_its_sources_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path, 0).add(TEST, "passed", 1.0, "")
    assert Ledger(path, float("inf")).passed(TEST)
    assert not Ledger(path, 0).passed(TEST), "a run under way changes nothing for its workers"
    monkeypatch.setattr(ledger, "_product", lambda: "changed")
    ledger.key.cache_clear()
    assert not Ledger(path, float("inf")).passed(TEST)
    ledger.key.cache_clear()


def test_the_last_result_counts_and_a_cut_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for outcome in ("failed", "passed", "failed"):
        Ledger(path, 0).add(TEST, outcome, 1.0, "")
    path.write_text(path.read_text() + '{"test": "tes')
    assert not Ledger(path, float("inf")).passed(TEST)


def test_the_table_names_stacks_failures_and_reasons() -> None:
    record = {"seconds": 60.0, "why": ""}
    bits = f"{FILE}::TestQuantise::test_bits"
    lines = list(
        summary(
            [
                {**record, "test": f"{bits}[pocl-simd]", "outcome": "failed"},
                {**record, "test": TEST, "outcome": "passed"},
                {**record, "test": f"{bits}[rusticl-simt]", "outcome": "skipped", "why": "missing"},
            ]
        )
    )
    assert any(line.split() == ["pocl-simd", "0", "1", "0", "1.0"] for line in lines)
    assert f"failed {bits}[pocl-simd]" in lines
    assert "skipped 1 of rusticl-simt: missing" in lines


def run(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop(ledger.BEGAN, None)
    command = [sys.executable, "-m", "pytest", "-p", "tests.ledger", "--ledger", "kept.jsonl"]
    command += ["--import-mode=importlib", "-q", *arguments, "test_probe.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "a worker"])
def test_a_run_goes_on_where_the_last_one_was(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_probe.py").write_text(PROBE)
    first = run(tmp_path, *workers)
    assert "1 failed, 1 passed, 1 skipped" in first and "left of part 1/1: 0 tests" in first
    assert "skipped 1 of host: not here" in first
    (tmp_path / "mended").touch()
    second = run(tmp_path, *workers)
    assert "1 passed, 1 skipped" in second and "failed test_probe.py" not in second
    assert "a number and a count" in run(tmp_path, "--part", "9/8")
