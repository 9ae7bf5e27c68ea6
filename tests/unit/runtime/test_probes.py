"""Probes: how findings become targets, and what a dying child means."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ferro.runtime import probe_checks, probe_sources, probes
from ferro.runtime.errors import DeviceUnusable
from ferro.runtime.listing import DeviceInfo, interpreter_info
from ferro.runtime.probes import EXACTNESS, Findings

CPU = DeviceInfo(0, "pocl", "cpu", "Portable Computing Language", "3.0", "3.0", "cpu")
GPU = DeviceInfo(0, "intel-gpu", "UHD", "Intel OpenCL Graphics", "3.0", "25", "gpu")
LLVMPIPE = DeviceInfo(0, "rusticl", "llvmpipe", "rusticl", "3.0", "22", "cpu")
EXACT = dict.fromkeys(EXACTNESS, "")
PYTHON = sys.executable


@pytest.fixture
def found() -> Findings:
    results = {**EXACT, "vnni512": "", "vnni256": "", "avx2": "", "dp4a": "", "block_read": ""}
    return Findings(results, "intel")


def test_a_cpu_prefers_vectors(found: Findings) -> None:
    simd, simt = probes.targets(CPU, found)
    assert (simd.kind, simd.lanes, simd.dot, simd.abi) == ("simd", 16, "vnni512", "intel")
    assert (simt.kind, simt.dot) == ("simt", "dp4a")
    assert "block_read" in simt.features and "block_read" not in simd.features


def test_an_n100_cpu_has_eight_lanes(found: Findings) -> None:
    del found.results["vnni512"]
    assert (probes.targets(CPU, found)[0].lanes, probes.targets(CPU, found)[0].dot) == (
        8,
        "vnni256",
    )


def test_lanes_are_those_of_the_runtimes_compiler_not_of_the_processor(
    found: Findings,
) -> None:
    aborted = "the process ended with status -6"
    found.results.update(vnni512=aborted, vnni256=aborted)
    simd = probes.targets(CPU, found)[0]
    assert (simd.lanes, simd.dot) == (8, "avx2")


def test_without_a_working_dot_it_is_emulated(found: Findings) -> None:
    died = "the process ended with status -4"
    found.results.update(vnni512=died, vnni256=died, avx2="wrong", dp4a="wrong")
    assert {target.dot for target in probes.targets(CPU, found)} == {"emulated"}


def test_a_gpu_runs_work_items(found: Findings) -> None:
    assert [target.kind for target in probes.targets(GPU, found)] == ["simt"]
    assert [target.kind for target in probes.targets(LLVMPIPE, found)] == ["simt", "simd"]


def test_exactness_says_what_differs() -> None:
    assert Findings(EXACT).exact == "yes"
    assert Findings({**EXACT, "arithmetic": "fma: subnormals are flushed"}).exact.startswith("fma")
    assert "not probed" in Findings({}).exact


def test_the_interpreter_is_exact_by_definition() -> None:
    assert probes.findings(interpreter_info(0)).exact == "yes"


def test_the_abi_is_the_form_that_worked() -> None:
    results = {"llvm_fma": "", "vnni512/intel": "aborted", "vnni512/pocl": ""}
    summed = probes._sum_up(results, "pocl")
    assert summed.abi == "pocl" and summed.works("vnni512")
    assert probes._sum_up({"llvm_fma": ""}, "intel").abi == "intel"
    assert probes._sum_up({"llvm_fma": "no", "vnni512/pocl": ""}, "pocl").abi == ""


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A child that does ``body`` for each probe's ``name``."""
    program = tmp_path / "child"
    program.write_text(
        f"#!{PYTHON}\nimport json, os, sys, time\n"
        f"print({probes.MARK!r} + json.dumps([{probes.READY!r}, '']), flush=True)\n"
        f"for name in sys.argv[4:]:\n    {body}\n"
        f"    print({probes.MARK!r} + json.dumps([name, '']), flush=True)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(probes.sys, "executable", str(program))


def test_a_probe_that_kills_its_process_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(tmp_path, monkeypatch, "name == 'dp4a' and os.abort()")
    monkeypatch.setattr(probes, "wanted_probes", lambda info: ["emulated", "dp4a", "avx2"])
    found = probes.probe(CPU)
    assert found.works("emulated") and found.works("avx2")
    assert "status -6" in found.results["dp4a"]


def test_a_probe_that_hangs_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child(tmp_path, monkeypatch, "name == 'dp4a' and time.sleep(30)")
    monkeypatch.setattr(probes, "wanted_probes", lambda info: ["dp4a", "avx2"])
    monkeypatch.setattr(probes, "TIMEOUT", 1.0)
    found = probes.probe(CPU)
    assert "no answer within 1 s" in found.results["dp4a"] and found.works("avx2")


def test_a_probe_whose_process_was_killed_from_outside_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "killed"
    once = f"os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w'), os.kill(os.getpid(), 9))"
    child(tmp_path, monkeypatch, once)
    monkeypatch.setattr(probes, "wanted_probes", lambda info: ["dp4a", "avx2"])
    assert probes.probe(CPU).results == {"dp4a": "", "avx2": ""}
    child(tmp_path, monkeypatch, "name == 'dp4a' and os.kill(os.getpid(), 9)")
    assert "status -9" in probes.probe(CPU).results["dp4a"]


UNSTARTED = {
    "raises": ("raise ImportError('no ferro here')", "ImportError: no ferro here"),
    "ends": ("raise SystemExit(3)", "status 3"),
    "ends well": ("raise SystemExit(0)", "ended early"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "status -9"),
    "hangs": ("import time; time.sleep(30)", "no answer"),
}


@pytest.mark.parametrize("body, said", UNSTARTED.values(), ids=list(UNSTARTED))
def test_probes_that_do_not_start_are_an_error_and_no_finding(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "child"
    program.write_text(f"#!{PYTHON}\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr(probes.sys, "executable", str(program))
    monkeypatch.setattr(probes, "TIMEOUT", 2.0)
    monkeypatch.setattr(probes, "_known", {})
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(DeviceUnusable, match="did not start") as raised:
        probes.findings(CPU)
    assert said in str(raised.value)
    assert not probes._known and not list((tmp_path / "cache").rglob("*.json"))


def test_a_process_that_does_not_see_the_device_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path))
    nowhere = replace(CPU, name="a device of another machine")
    with pytest.raises(DeviceUnusable, match="does not see the device"):
        probes.probe(nowhere)


def test_findings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(probes, "_known", {})
    runs = []

    def probe(info: DeviceInfo) -> Findings:
        runs.append(info)
        return Findings({"dp4a": ""}, "intel")

    monkeypatch.setattr(probes, "probe", probe)
    assert probes.findings(CPU) is probes.findings(CPU)
    monkeypatch.setattr(probes, "_known", {})
    assert probes.findings(CPU) == Findings({"dp4a": ""}, "intel")
    assert len(runs) == 1


def test_every_probe_has_a_source_and_a_check() -> None:
    names = {*probe_sources.SOURCES, *probes.ABIS}
    assert names == set(probe_checks.CHECKS)
    for name, abis in probes.ABIS.items():
        assert all("__kernel void probe" in probe_sources.source(name, abi) for abi in abis)


@pytest.mark.parametrize("name", ["vnni512", "dp4a"])
def test_a_saturating_dot_is_found_out(name: str) -> None:
    check = probe_checks.check(name)
    w, x, c = (array.view(np.int8 if i < 2 else np.int32) for i, array in enumerate(check.inputs))
    products = w.reshape(-1, 4).astype(np.int32) * x.reshape(-1, 4)
    right = c + products.sum(axis=1, dtype=np.int32)
    assert check.verdict(right.view(np.uint32)) == ""
    # what vpmaddubsw would do to the products of biased weights
    pairs = (w.reshape(-1, 4).astype(np.int32) + 128) * x.reshape(-1, 4)
    short = np.clip(pairs[:, ::2] + pairs[:, 1::2], -32768, 32767).sum(axis=1)
    saturated = (c + short - 128 * x.reshape(-1, 4).astype(np.int32).sum(axis=1)).astype(np.int32)
    assert "wrong" in check.verdict(saturated.view(np.uint32))


def test_contraction_and_flushing_are_found_out() -> None:
    check = probe_checks.arithmetic()
    a, b, c = check.inputs
    with np.errstate(all="ignore"):
        parts = [
            probe_checks.exact.fma32(a, b, c),
            a * b + c,
            a * b,
            a + c,
            np.rint(a),
            np.floor(a),
        ]
        assert check.verdict(np.concatenate(parts)) == ""
        contracted = [parts[0], parts[0], *parts[2:]]
        assert "multiply, then add" in check.verdict(np.concatenate(contracted))
        tiny = probe_checks.subnormal(parts[2])
        flushed = [*parts[:2], np.where(tiny, np.float32(0), parts[2]), *parts[3:]]
    assert check.verdict(np.concatenate(flushed)) == "multiply: subnormals are flushed"
