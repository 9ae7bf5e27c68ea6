"""The pages: their code runs, their commands parse, what they name exists, nothing is left out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferro.dsl
from ferro.cli import build_parser
from ferro.dsl import CompileError, language, types
from ferro.dsl.ir import OPS
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.printer import text as printed

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def read(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(name: str, *languages: str) -> list[str]:
    return [text for tag, text in BLOCK.findall(read(name)) if tag in languages]


def run(name: str, folder: Path, **names: Any) -> dict[str, Any]:
    """Execute the Python of a page, block after block, each from a file of its own."""
    space = {**vars(ferro.dsl), **names}
    for number, text in enumerate(blocks(name, "python")):
        file = folder / f"block_{number}.py"
        file.write_text(text)
        exec(compile(text, str(file), "exec", annotations.compiler_flag), space)
    return space


def kernels(space: dict[str, Any]) -> Iterator[KernelDefinition]:
    for found in space.values():
        if isinstance(found, KernelDefinition) and not found.is_function:
            yield found


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FERRO_DEVICE", "interpreter")
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path / "cache"))


# code


def test_the_language_page_compiles(tmp_path: Path) -> None:
    made = {definition.name for definition in kernels(run("docs/language.md", tmp_path))}
    assert made >= {"scale_rows", "capped", "gather_rows", "log_sum_exp", "matmul_q8"}


def test_every_kernel_of_the_language_page_is_accepted(tmp_path: Path) -> None:
    for definition in kernels(run("docs/language.md", tmp_path)):
        optional = [n for n, p in definition.parameters.items() if p.optional]
        for absent in ([], optional):
            definition.specialise(absent=absent)


def test_the_readme_runs(tmp_path: Path) -> None:
    space = run("README.md", tmp_path)
    x, y = space["x"], space["y"]
    assert np.array_equal(y, 0.5 * x + 1)


def test_the_tutorial_runs_without_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, right, check, *_ = blocks("docs/tutorial.md", "python")
    (tmp_path / "add_norm.py").write_text(right)
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(check, {})
    assert sum(map(bool, right.split("@kernel")[1].splitlines())) < 40


@pytest.mark.parametrize("name", ["docs/tutorial.md", "docs/errors.md"])
def test_the_message_that_is_shown_is_the_one_printed(name: str, tmp_path: Path) -> None:
    first = blocks("docs/tutorial.md", "python")[0]
    file = tmp_path / "add_norm.py"
    file.write_text(first)
    space: dict[str, Any] = {}
    exec(compile(first, str(file), "exec"), space)
    with pytest.raises(CompileError) as caught:
        space["add_norm"].specialise()
    message = caught.value.text.replace(str(file), "add_norm.py")
    assert any(message in text for text in blocks(name, "")), message


def test_the_ir_that_is_shown_is_the_one_printed(tmp_path: Path) -> None:
    definition = next(kernels(run("docs/ir.md", tmp_path)))
    shown = next(text for text in blocks("docs/ir.md", "") if text.startswith("kernel "))
    lines = printed(definition.specialise()).splitlines()
    assert [line for line in shown.splitlines() if line not in lines] == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_parse(name: str) -> None:
    parser = build_parser()
    for text in blocks(name, "", "sh"):
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if "ferro " in line else []
            if words[:1] == ["ferro"]:
                _, rest = parser.parse_known_args(words[1:])
                assert not rest, line


# names


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_language_exist(name: str) -> None:
    for word in re.findall(r"\btl\.([a-z]\w*)", read(name)):
        assert hasattr(language, word), f"tl.{word}"


@pytest.mark.parametrize("name", NAMES)
def test_files_and_headings_exist(name: str) -> None:
    text = read(name)
    for path in re.findall(r"`((?:ferro|kernels_src|tests|autotune)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        page = (ROOT / name).parent / file if file else ROOT / name
        assert page.exists(), target
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M) if anchor else []
        assert not anchor or anchor in [_anchor(h) for h in headings], target


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", [*language.BUILTINS, "range", "min", "max", "breakpoint"])
def test_every_function_of_the_language_is_described(name: str) -> None:
    prefix = "tl." if name in language.BUILTINS else ""
    assert re.search(rf"`[^`\n]*{re.escape(prefix)}{name}\(", read("docs/language.md"))


def test_every_kind_of_parameter_and_dtype_is_described() -> None:
    text = read("docs/language.md")
    kinds = [n for n, v in vars(language).items() if isinstance(v, language.Annotation)]
    assert [n for n in kinds if f"`tl.{n}" not in text and f" tl.{n}" not in text] == []
    assert [n for n in types.DTYPES if f"`{n}`" not in text] == []


def test_every_error_has_its_line() -> None:
    raised = {
        c
        for p in (ROOT / "ferro").rglob("*.py")
        for c in re.findall(r'"(FER\d{3})"', p.read_text())
    }
    listed = re.findall(r"^\| (FER\d{3}) \|", read("docs/errors.md"), re.M)
    assert listed == sorted(raised)


def test_every_operation_of_the_ir_has_its_line() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", read("docs/ir.md"), re.M)
    listed = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert listed >= {name for key in OPS for name in key.split()}
