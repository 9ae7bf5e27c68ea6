"""Where the cache lies, and writing files whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferro.runtime.folders import cache_folder, write_atomically


def test_the_users_choice_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_CACHE_DIR", "/a")
    assert cache_folder("programs") == Path("/a/programs")
    monkeypatch.delenv("FERRO_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/b/ferro")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache_folder() == Path("/c/.cache/ferro")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sub" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"newer")
    assert path.read_bytes() == b"new" and list(path.parent.iterdir()) == [path]
