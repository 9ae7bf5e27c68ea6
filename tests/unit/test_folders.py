"""Where the cache lies, and writing files whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferro.folders import cache_folder, models_folder, write_atomically


def test_the_users_choice_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_CACHE_DIR", "/a")
    assert cache_folder("programs") == Path("/a/programs")
    monkeypatch.delenv("FERRO_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/b/ferro")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache_folder() == Path("/c/.cache/ferro")


def test_models_have_a_folder_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_MODELS_DIR", "/a")
    assert models_folder() == Path("/a")
    monkeypatch.delenv("FERRO_MODELS_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", "/b")
    assert models_folder() == Path("/b/ferro/models")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert models_folder() == Path("/c/.local/share/ferro/models")


def test_a_file_may_be_read_by_whom_any_new_file_may(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


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


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"data")
    assert os.read(reader, 9) == b"data" and pipe.is_fifo()
    os.close(reader)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_link_to_a_device_is_written_into_and_a_failure_names_it(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(link, b"data")
    assert caught.value.filename == str(link) and Path("/dev/full").is_char_device()
