"""Finding kernels by name, in the package and in any file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ferro import catalogue
from ferro.catalogue import CatalogueError, find, find_functions, load, shipped

SCALE = """\
from __future__ import annotations
from ferro.dsl import kernel, tl

@kernel
def twice(v):
    return v * 2.0

@kernel
def scale(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N], BLOCK: tl.schedule[64] = 64):
    \"\"\"y = 2 x

    More words.\"\"\"
    n = tl.block(0, N, BLOCK)
    tl.store(y[n], twice(tl.load(x[n], mask=n < N)), mask=n < N)
"""


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_shipped_kernels_have_a_word_each() -> None:
    names = [entry.name for entry in shipped()]
    assert {"rmsnorm", "softmax", "matmul_q8", "attention"} <= set(names)
    assert len(names) == len(set(names))
    assert all(entry.summary for entry in shipped())


def test_functions_that_are_only_called_are_left_out() -> None:
    assert not any(entry.definition.is_function for entry in shipped())
    assert "merge" not in {entry.name for entry in shipped()}


@pytest.mark.parametrize("name", ["rmsnorm", "norms.rmsnorm"])
def test_find_shipped(name: str) -> None:
    entry = find(name)
    assert (entry.module, entry.name, entry.path.name) == ("norms", "rmsnorm", "norms.py")


def test_find_in_a_file(tmp_path: Path) -> None:
    file = write(tmp_path, SCALE)
    for name in (f"{file}", f"{file}:scale"):
        entry = find(name)
        assert (entry.name, entry.summary) == ("scale", "y = 2 x")
        assert entry.definition.specialise(BLOCK=64).name == "scale"


def test_path_of_a_shipped_file_is_the_shipped_module() -> None:
    path = catalogue.SHIPPED / "norms.py"
    assert find(f"{path}:rmsnorm").definition is find("rmsnorm").definition


def test_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    file = write(tmp_path, SCALE)
    assert find(str(file)).name == "scale"
    file.write_text(SCALE.replace("def scale", "def stretch"))
    os.utime(file, ns=(0, 12345))
    assert find(str(file)).name == "stretch"


def test_imports_beside_the_file_work(tmp_path: Path) -> None:
    write(tmp_path, "WIDTH = 3\n", "beside.py")
    file = write(tmp_path, SCALE.replace("\n\n", "\nimport beside\n\n", 1))
    assert find(str(file)).name == "scale"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rmsnrm", "no kernel `rmsnrm` in kernels_src; did you mean `rmsnorm`"),
        ("zzz", "there are: "),
        ("no/such/file.py:scale", "there is no file no/such/file.py"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(CatalogueError, match=message):
        find(name)


def test_several_kernels_in_a_file_must_be_named(tmp_path: Path) -> None:
    second = SCALE[SCALE.index("@kernel\ndef scale") :].replace("def scale", "def other")
    file = write(tmp_path, SCALE + "\n" + second)
    assert [entry.name for entry in load(file)] == ["scale", "other"]
    with pytest.raises(CatalogueError, match="several kernels: scale, other; say .*:NAME"):
        find(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module_anywhere", "cannot be loaded: ModuleNotFoundError"),
        ("import sys; sys.exit(3)", r"it ends the process \(exit code 3\) .*__main__"),
        ("raise SystemExit", r"it ends the process \(exit code None\)"),
        ("raise BaseException('x')", "cannot be loaded: BaseException: x"),
        ("class Own(BaseException): pass\nraise Own", "cannot be loaded: Own"),
        ("raise GeneratorExit", "cannot be loaded: GeneratorExit"),
        ("def f(:", "cannot be loaded: SyntaxError"),
        ("def f(x: K): pass", "NameError: name 'K' is not defined: begin the file with `from __fu"),
        ("from __future__ import annotations\nK", "NameError: name 'K' is not defined$"),
        ("import sys; sys.path.clear(); 1 / 0", "cannot be loaded: ZeroDivisionError"),
    ],
)
def test_file_that_cannot_be_loaded(
    tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    with pytest.raises(CatalogueError, match=message) as error:
        load(write(tmp_path, text + "\n"))
    assert error.value.exit_code == 2


def test_an_interrupt_while_a_file_is_loaded_stays_one(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(write(tmp_path, "raise KeyboardInterrupt\n"))


def test_what_a_file_prints_is_kept_from_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(write(tmp_path, SCALE + "\nprint('loaded')\n"))
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "loaded\n")


def test_a_folder_names_its_files_with_kernels(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit\n", "other.py")
    with pytest.raises(CatalogueError, match="is a folder: name a Python file .*none of its files"):
        load(tmp_path)
    write(tmp_path, SCALE)
    with pytest.raises(CatalogueError, match=r"is a folder: name one of its files .*: mine\.py$"):
        find(f"{tmp_path}:scale")


def test_functions_that_are_inlined_can_be_shown(tmp_path: Path) -> None:
    file = write(tmp_path, SCALE)
    for name, shown in (
        ("silu", "activations.silu"),
        ("activations.gelu", "activations.gelu"),
        (f"{file}:twice", f"{file}:twice"),
        ("merge", "attention.merge or softmax.merge"),
    ):
        assert all(entry.definition.is_function for entry in find_functions(name))
        with pytest.raises(CatalogueError, match=f"inlined into the kernels.*show {shown}` prints"):
            find(name)
    assert find_functions("rmsnorm") == find_functions("nothing") == find_functions(str(file)) == ()
