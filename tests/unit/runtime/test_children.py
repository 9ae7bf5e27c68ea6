"""Child processes import what their parent has imported, wherever they start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ferro.runtime import children

ROOT = Path(children.__file__).parents[2]


def imported(tmp_path: Path) -> str:
    command = [sys.executable, "-c", "import ferro; print(ferro.__file__)"]
    done = subprocess.run(
        command, cwd=tmp_path, env=children.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_relative_search_path_of_a_folder_that_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p or ".").resolve() != ROOT])
    monkeypatch.chdir(tmp_path)
    assert imported(tmp_path) == str(ROOT / "ferro" / "__init__.py")


def test_another_ferro_in_the_folder_where_it_starts(tmp_path: Path) -> None:
    (tmp_path / "ferro.py").write_text("")
    assert imported(tmp_path) == str(ROOT / "ferro" / "__init__.py")


def test_the_order_of_the_search_path_is_kept() -> None:
    paths = children.environment()["PYTHONPATH"].split(":")
    assert paths[: len(sys.path)] == [str(Path(path).absolute()) for path in sys.path]
