"""Vendor discovery: what is written where, and which variables are set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferro.runtime import vendors
from ferro.runtime.errors import CallError, DeviceUnusable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: no user setting, no system entries, a cache folder of its own."""
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("OCL_ICD_VENDORS", "LD_PRELOAD", "RUSTICL_ENABLE", "POCL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    system = tmp_path / "system"
    system.mkdir()
    monkeypatch.setattr(vendors, "SYSTEM_FOLDER", system)
    monkeypatch.setattr(vendors, "intel_library", lambda: None)
    return system


def contents(found: vendors.Vendors) -> dict[str, str]:
    paths = Path(found.folder).glob("*.icd")
    return {path.name: path.read_text().strip() for path in paths}


def test_system_entries_are_kept(folder: Path) -> None:
    (folder / "mesa.icd").write_text("libMesaOpenCL.so.1\n")
    assert contents(vendors.discover()) == {"mesa.icd": "libMesaOpenCL.so.1"}


def test_intel_from_pip_is_added(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "intel_library", lambda: "/env/lib/libintelocl.so")
    (folder / "mesa.icd").write_text("libMesaOpenCL.so.1\n")
    assert contents(vendors.discover()) == {
        "mesa.icd": "libMesaOpenCL.so.1",
        "ferro-intel-cpu.icd": "/env/lib/libintelocl.so",
    }


def test_a_system_intel_runtime_is_not_loaded_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = folder / "libintelocl.so"
    library.touch()
    (folder / "intel.icd").write_text(f"{library}\n")
    monkeypatch.setattr(vendors, "intel_library", lambda: "/env/lib/libintelocl.so")
    assert contents(vendors.discover()) == {"intel.icd": str(library)}


def test_entries_with_a_missing_path_are_dropped(folder: Path) -> None:
    (folder / "gone.icd").write_text("/opt/nowhere/libgone.so\n")
    (folder / "empty.icd").write_text("")
    assert contents(vendors.discover()) == {}


@pytest.mark.parametrize("value", ["folder", "file", "library"])
def test_the_users_vendors_replace_the_systems(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (folder / "mesa.icd").write_text("libMesaOpenCL.so.1\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "own.icd").write_text("libown.so\n")
    chosen = {"folder": str(mine), "file": str(mine / "own.icd"), "library": "libown.so"}
    monkeypatch.setenv("OCL_ICD_VENDORS", chosen[value])
    assert list(contents(vendors.discover()).values()) == ["libown.so"]


def test_a_child_process_finds_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mesa.icd").write_text("libMesaOpenCL.so.1\n")
    monkeypatch.setattr(vendors, "intel_library", lambda: "/env/lib/libintelocl.so")
    first = vendors.discover()
    monkeypatch.setenv("OCL_ICD_VENDORS", first.folder)
    assert vendors.discover() == first


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mesa.icd").write_text("libMesaOpenCL.so.1\n")
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("FERRO_CACHE_DIR", str(blocked))
    found = vendors.discover()
    assert contents(found) == {"mesa.icd": "libMesaOpenCL.so.1"}
    assert not found.folder.startswith(str(blocked))


def test_inside_oclgrind_only_oclgrind_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mesa.icd").write_text("libMesaOpenCL.so.1\n")
    library = tmp_path / "liboclgrind-rt-icd.so"
    library.touch()
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "liboclgrind-rt.so"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = vendors.discover()
    assert found.oclgrind and contents(found) == {"oclgrind.icd": str(library)}


def test_without_a_linker_the_package_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendors, "pocl_installed", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [note for note in vendors.notes(True) if "binutils" in note]
    (tmp_path / "ld").touch(mode=0o755)
    assert vendors.notes(True) == []


def test_without_pyopencl_only_the_interpreter_is_left() -> None:
    assert "interpreter" in vendors.notes(has_pyopencl=False)[0]


def test_rusticl_follows_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUSTICL_ENABLE", "zink")
    vendors.enable_rusticl(software=True)
    assert os.environ["RUSTICL_ENABLE"] == "zink"


def test_rusticl_on_a_gpu_or_in_software(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "gpu_drivers", list)
    monkeypatch.setenv("RUSTICL_ENABLE", "")  # restored afterwards
    del os.environ["RUSTICL_ENABLE"]
    vendors.enable_rusticl(software=False)
    assert "RUSTICL_ENABLE" not in os.environ
    vendors.enable_rusticl(software=True)
    assert os.environ["RUSTICL_ENABLE"] == "llvmpipe"
    del os.environ["RUSTICL_ENABLE"]
    monkeypatch.setattr(vendors, "gpu_drivers", lambda: ["iris"])
    vendors.enable_rusticl(software=True)
    assert os.environ["RUSTICL_ENABLE"] == "iris"


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which nothing was prepared yet, and again afterwards."""
    for name in ("OCL_ICD_VENDORS", *vendors.THREADS):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    vendors.prepare.cache_clear()
    yield
    vendors.prepare.cache_clear()


def test_threads_reach_every_runtime(unloaded: None) -> None:
    vendors.limit_threads(3)
    assert [os.environ[name] for name in vendors.THREADS] == ["3"] * len(vendors.THREADS)
    with pytest.raises(CallError, match="at least 1"):
        vendors.limit_threads(0)


def test_threads_cannot_change_once_opencl_is_loaded(unloaded: None) -> None:
    vendors.limit_threads(2)
    vendors.prepare()
    vendors.limit_threads(2)
    with pytest.raises(DeviceUnusable, match="before"):
        vendors.limit_threads(1)


def test_a_folder_of_pocl_that_is_gone_is_replaced(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendors, "pocl_possible", lambda: True)
    gone = tmp_path / f"{vendors.POCL_CACHE}gone"
    monkeypatch.setenv("POCL_CACHE_DIR", str(gone))
    vendors.keep_compiler_caches_away()
    made = os.environ["POCL_CACHE_DIR"]
    assert made != str(gone) and Path(made).is_dir()
    vendors.keep_compiler_caches_away()
    assert os.environ["POCL_CACHE_DIR"] == made


def test_the_users_own_folder_of_pocl_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendors, "pocl_possible", lambda: True)
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "mine"))
    vendors.keep_compiler_caches_away()
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "mine")
