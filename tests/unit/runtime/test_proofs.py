"""Proofs are found again, only for the same kernel and numbers, and never stand in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.dsl import bounds, kernel, launch, tl
from ferro.dsl.diagnostics import CompileError
from ferro.runtime.proofs import Proofs


@kernel
def first(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N], many: tl.i32[0, 1000]):
    i = tl.program_id(0, many)
    tl.store(y[i], tl.load(x[i]))


def arguments(size: int, many: int) -> dict[str, Any]:
    return {"x": np.zeros(size, np.float32), "y": np.zeros(size, np.float32), "many": many}


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many programs each proof was for."""
    asked: list[int] = []
    check = bounds.check

    def counted(made: Any, scalars: Any, grid: Any, extents: Any) -> None:
        asked.append(grid[0])
        check(made, scalars, grid, extents)

    monkeypatch.setattr(bounds, "check", counted)
    return asked


def ask(proofs: Proofs, size: int, many: int) -> None:
    made = first.specialise()
    proofs.check(made, launch.bind(made, arguments(size, many)))


def test_a_proof_serves_later_processes(tmp_path: Path, proved: list[int]) -> None:
    for _ in range(2):
        proofs = Proofs(tmp_path / "new" / "proofs")
        ask(proofs, 8, 8)
        ask(proofs, 8, 8)
    assert proved == [8]


def test_other_numbers_are_proved_anew(tmp_path: Path, proved: list[int]) -> None:
    proofs = Proofs(tmp_path / "proofs")
    ask(proofs, 8, 8)
    ask(proofs, 8, 7)
    ask(proofs, 9, 8)
    assert proved == [8, 7, 8]


def test_what_is_refused_is_refused_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(CompileError):
            ask(Proofs(tmp_path / "proofs"), 8, 9)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe nonsense\n", b"0" * 63 + b"\n", b"\n" * 9])
def test_a_damaged_file_proves_nothing(tmp_path: Path, proved: list[int], content: bytes) -> None:
    path = tmp_path / "proofs"
    path.write_bytes(content)
    ask(Proofs(path), 8, 8)
    ask(Proofs(path), 8, 8)
    assert len(proved) in (1, 2)  # a torn last line costs one more proof


def test_a_folder_that_cannot_be_written_costs_proofs_only(
    tmp_path: Path, proved: list[int]
) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(2):
        ask(Proofs(tmp_path / "file" / "proofs"), 8, 8)
    assert proved == [8, 8]
