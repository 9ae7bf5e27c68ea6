"""What was read of a kernel is found again by later processes, only for the same text and names,
and damage or strangers in the folder never stand in the way."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.dsl import canonical, ir, kept, kernel, specialise, tl
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.interpreter import interpret
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import bind


@kernel
def twice(x):
    return x + x


@kernel
def thrice(x):
    return x + x + x


def scaled(
    x: tl.ptr[tl.f32, N],
    y: tl.out[tl.f32, N],
    B: tl.schedule[16, 32] = 16,
):
    i = tl.block(0, N, B)
    tl.store(y[i], change(tl.load(x[i], mask=i < N, other=0.0)), mask=i < N)


def fresh(change: KernelDefinition = twice, **parts: Any) -> KernelDefinition:
    """The kernel as a new process has it: nothing of it was read."""
    made = kernel(scaled)
    names = {"tl": tl, "change": KernelDefinition(**whole(change))}
    return KernelDefinition(**{**whole(made), "names": names, **parts})


def whole(made: KernelDefinition) -> dict[str, Any]:
    return {k: getattr(made, k) for k in ("name", "file", "line", "source", "names", "function")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path))
    kept._make_room.cache_clear()
    return tmp_path / "kernels"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were specialised from their text."""
    done: list[str] = []
    make: Callable[..., ir.Kernel] = specialise.specialise

    def counted(definition: KernelDefinition, *rest: Any) -> ir.Kernel:
        done.append(definition.name)
        return make(definition, *rest)

    monkeypatch.setattr(specialise, "specialise", counted)
    return done


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_kernel_is_read_once(read: list[str]) -> None:
    first, second = fresh().specialise(), fresh().specialise()
    assert read == ["scaled"]
    assert canonical.canonical(first) == canonical.canonical(second)
    assert str(first) == str(second)


def test_a_kept_kernel_runs() -> None:
    fresh().specialise()
    made = fresh().specialise()
    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    bound = bind(made, {"x": x, "y": y})
    interpret(made, {"x": x, "y": y}, bound.scalars, bound.grid)
    assert (y == x + x).all()


def test_values_of_a_kept_kernel_are_like_no_others() -> None:
    first = fresh().specialise()
    second = fresh().specialise()
    ids = [{v.id for op in ir.walk(k.body) for v in op.results} for k in (first, second)]
    assert ids[0] and not ids[0] & ids[1]


@pytest.mark.parametrize(
    "change",
    [
        {"constants": {"B": 32}},
        {"change": thrice},
        {"line": 7},
        {"file": "elsewhere.py"},
        {"source": "@kernel\ndef scaled(x: tl.inout[tl.f32, N]):\n    tl.store(x[0], 1.0)\n"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_kernel_is_read_anew(change: dict[str, Any], read: list[str]) -> None:
    fresh().specialise()
    constants = change.pop("constants", {})
    fresh(**change).specialise(**constants)
    assert read == ["scaled", "scaled"]


def test_another_version_of_the_language_reads_anew(
    read: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh().specialise()
    before = entries(folder)
    monkeypatch.setattr(kept, "rules", lambda: "f" * 64)
    kept._make_room.cache_clear()
    fresh().specialise()
    assert read == ["scaled", "scaled"]
    assert before and not any(path.exists() for path in before)


def test_damage_is_read_anew(read: list[str], folder: Path) -> None:
    fresh().specialise()
    for damage in (b"", b"x" * 5, None):
        for path in entries(folder):
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
        fresh().specialise()
    assert read == ["scaled"] * 4


class Stranger:
    """Something that does more than to be there when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.putenv, ("FERRO_TEST_STRANGER", "1"))


def test_a_stranger_is_no_entry(read: list[str], folder: Path) -> None:
    fresh().specialise()
    data = pickle.dumps(Stranger())
    for path in entries(folder):
        path.write_bytes(hashlib.sha256(data).digest() + data)
    fresh().specialise()
    assert read == ["scaled"] * 2


def test_a_folder_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path / "file"))
    assert fresh().specialise().name == "scaled"


def test_errors_are_not_kept(folder: Path) -> None:
    text = "@kernel\ndef scaled(x: tl.inout[tl.f32, N]):\n    tl.store(x[0], nothing)\n"
    for _ in range(2):
        with pytest.raises(CompileError, match="unknown name `nothing`"):
            fresh(source=text).specialise()


def test_too_many_entries_begin_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh().specialise()
    monkeypatch.setattr(kept, "MOST", 1)
    kept._make_room.cache_clear()
    before = entries(folder)
    fresh().specialise(B=32)
    assert not set(before) & set(entries(folder))
