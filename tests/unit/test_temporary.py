"""Temporary folders go with the last process that uses them, however it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKE = "from ferro import temporary; print(temporary.made('ferro-test-'), flush=True)"
JOIN = "import sys; from ferro import temporary; print(temporary.join(temporary.Path(sys.argv[1])))"
WAIT = "; import sys; sys.stdin.readline()"


@contextmanager
def process(
    place: Path, program: str, *arguments: object
) -> Iterator[tuple[subprocess.Popen, str]]:
    """A process whose temporary folder is ``place``, and the first line that it prints."""
    environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipe = subprocess.PIPE
    started = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
    with started:
        assert started.stdout is not None
        try:
            yield started, started.stdout.readline().strip()
        finally:
            if started.poll() is None:
                started.communicate("\n", timeout=30)


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    with process(tmp_path, MAKE + WAIT) as (_, folder):
        assert Path(folder).parent == tmp_path and Path(folder).is_dir()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_start(tmp_path: Path) -> None:
    with process(tmp_path, MAKE + WAIT) as (killed, left):
        killed.kill()
        killed.wait()
        (Path(left) / "unpacked").write_text("x")
    with process(tmp_path, MAKE + WAIT) as (_, folder):
        assert list(tmp_path.iterdir()) == [Path(folder)]


def test_folders_in_use_and_those_of_others_stay(tmp_path: Path) -> None:
    other = tmp_path / "ferro-test-without-lock"
    other.mkdir()
    with process(tmp_path, MAKE + WAIT) as (_, first), process(tmp_path, MAKE) as (_, second):
        assert first != second and Path(first).is_dir()
    assert list(tmp_path.iterdir()) == [other]


def test_a_child_keeps_it_longer_than_its_maker(tmp_path: Path) -> None:
    with process(tmp_path, MAKE + WAIT) as (maker, folder):
        with process(tmp_path, JOIN + WAIT, folder) as (_, joined):
            maker.communicate("\n", timeout=30)
            assert joined == "True" and Path(folder).is_dir()
        assert not Path(folder).exists()


def test_one_that_is_gone_cannot_be_joined(tmp_path: Path) -> None:
    with process(tmp_path, JOIN, tmp_path / "ferro-test-gone") as (_, joined):
        assert joined == "False"


def test_eight_starts_at_once(tmp_path: Path) -> None:
    program = "from ferro import temporary\nfor _ in range(9): assert temporary.made('t-').is_dir()"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    started = [subprocess.Popen(command, env=environment) for _ in range(8)]
    assert [one.wait(timeout=60) for one in started] == [0] * 8
    assert not list(tmp_path.iterdir())
