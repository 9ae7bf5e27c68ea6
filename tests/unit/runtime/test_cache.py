"""The program cache: keys, damage, folders that cannot be written, why, and the size limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferro.codegen.program import Argument, Config, Entry, Program, Target
from ferro.runtime import cache
from ferro.runtime.cache import ProgramCache

PARTS = {"kernel": "a" * 64, "codegen": "1", "driver": "3.0", "device": "cpu"}
N = ("name", "N")
PROGRAM = Program(
    source="__kernel void k() {}",
    options=("-cl-std=CL1.2",),
    entries=(
        Entry(
            "k",
            (
                Argument("buffer", "x"),
                Argument("scalar", "N", "i32"),
                Argument("scratch", "s", bytes=("*", N, ("const", 4))),
            ),
            (("cdiv", N, ("const", 64)), ("const", 1), ("const", 1)),
            (64, 1, 1),
        ),
    ),
    target=Target("simd", 16, "vnni512", "intel", frozenset({"vload_half"})),
    config=Config({"BLOCK": 64}, lanes=8, lane_axis=("n",), split=2, dot="avx2"),
)


def stored(folder: Path, **changes: str) -> ProgramCache:
    found = ProgramCache(folder)
    found.store("k", {**PARTS, **changes}, PROGRAM, b"binary")
    return found


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    found = stored(tmp_path)
    assert found.load("k", PARTS) == (PROGRAM, b"binary")
    assert ProgramCache(tmp_path).load("k", PARTS) == (PROGRAM, b"binary")


@pytest.mark.parametrize("part", sorted(PARTS))
def test_every_part_of_the_key_counts(tmp_path: Path, part: str) -> None:
    assert stored(tmp_path).load("k", {**PARTS, part: "other"}) is None


@pytest.mark.parametrize("at", [0, 20, 60, 200, -3])
def test_a_damaged_entry_is_none(tmp_path: Path, at: int) -> None:
    found = stored(tmp_path)
    (path,) = tmp_path.glob("*.program")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert found.load("k", PARTS) is None
    found.store("k", PARTS, PROGRAM, b"binary")
    assert found.load("k", PARTS) == (PROGRAM, b"binary")


@pytest.mark.parametrize("size", [0, 10, 50, 300])
def test_a_truncated_entry_is_none(tmp_path: Path, size: int) -> None:
    found = stored(tmp_path)
    (path,) = tmp_path.glob("*.program")
    path.write_bytes(path.read_bytes()[:size])
    assert found.load("k", PARTS) is None
    assert [entry.kernel for entry in found.entries()] in ([], ["k"])


def test_entries_of_other_parts_under_this_name_do_not_count(tmp_path: Path) -> None:
    found = stored(tmp_path)
    (path,) = tmp_path.glob("*.program")
    other = {**PARTS, "driver": "4.0"}
    path.rename(tmp_path / f"k-{cache.digest(other)}.program")
    assert found.load("k", other) is None


def test_a_folder_that_cannot_be_written_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    for _ in range(2):
        found = ProgramCache(blocked / "programs")
        found.store("k", PARTS, PROGRAM, b"binary")
    (told,) = caplog.messages
    assert told.startswith("compiled programs are not kept") and str(blocked) in told
    assert "set FERRO_CACHE_DIR" in told
    assert found.load("k", PARTS) is None and list(found.entries()) == []


def test_a_full_folder_warns_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    stored(tmp_path)
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_why_names_what_changed(tmp_path: Path) -> None:
    stored(tmp_path)
    stored(tmp_path, driver="3.1")
    stored(tmp_path, driver="3.1", kernel="b" * 64)
    reasons = [entry.reason for entry in ProgramCache(tmp_path).why("k")]
    assert reasons == [
        f"kernel: {'a' * 12} -> {'b' * 12}",
        "driver: 3.0 -> 3.1",
        "never built before",
    ]


def test_why_tells_a_damaged_entry(tmp_path: Path) -> None:
    stored(tmp_path)
    (path,) = tmp_path.glob("*.program")
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert "damaged" in stored(tmp_path).why("k")[0].reason


def test_remove_one_kernel_or_all(tmp_path: Path) -> None:
    found = stored(tmp_path)
    found.store("k-2", PARTS, PROGRAM, b"binary")
    assert found.remove("k") == 1
    assert [entry.kernel for entry in found.entries()] == ["k-2"]
    assert found.remove() == 1 and found.size() == 0


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    found = stored(tmp_path)
    size = found.size()
    found.limit = 2 * size + 100
    found.store("second", PARTS, PROGRAM, b"binary")
    (first,) = tmp_path.glob("k-*")
    (second,) = tmp_path.glob("second-*")
    os.utime(first, (100, 100))
    os.utime(second, (50, 50))
    assert found.load("k", PARTS) is not None  # used now
    found.store("third", PARTS, PROGRAM, b"binary")
    assert {entry.kernel for entry in found.entries()} == {"k", "third"}


def test_strange_kernel_names_stay_in_the_folder(tmp_path: Path) -> None:
    found = ProgramCache(tmp_path)
    found.store("../etc/<kernel>", PARTS, PROGRAM, b"")
    assert found.load("../etc/<kernel>", PARTS) == (PROGRAM, b"")
    assert len(list(tmp_path.glob("*.program"))) == 1
