"""The pages: their code runs, their commands parse, what they name exists, nothing is left out."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferro.dsl
from ferro.catalogue import Entry, shipped
from ferro.cli import build_parser
from ferro.dsl import A8, CompileError, language, types
from ferro.dsl.ir import OPS
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.printer import text as printed
from ferro.runtime import open_device

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)

SILU = """\
from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def silu(x: tl.ptr[tl.f32, M, K], y: tl.out[tl.f32, M, K]):
    m, k = tl.program_id(0, M), tl.block(1, K, 64)
    v = tl.load(x[m, k], mask=k < K)
    tl.store(y[m, k], v * tl.sigmoid(v), mask=k < K)
"""


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


def test_the_activation_of_the_kernels_page_gives_the_bits_of_quantise(tmp_path: Path) -> None:
    (text,) = (block for block in blocks("docs/kernels.md", "python") if "a8_out" in block)
    fused = defined(text, tmp_path / "silu_a8.py")
    (plain,) = (entry.definition for entry in shipped() if entry.name == "quantise")
    x = np.random.default_rng(0).standard_normal((3, 700)).astype(np.float32)
    gate = defined(SILU, tmp_path / "silu_plain.py")
    y, want, got = np.empty_like(x), A8.empty(3, 700), A8.empty(3, 700)
    with open_device("interpreter") as device:
        device.run(gate, x=x, y=y)
        device.run(plain, x=y, y=want)
        device.run(fused, x=x, y=got)
    assert np.array_equal(got.q, want.q) and np.array_equal(got.scale, want.scale)


def test_every_kernel_of_the_language_page_is_accepted(tmp_path: Path) -> None:
    for definition in kernels(run("docs/language.md", tmp_path)):
        optional = [n for n, p in definition.parameters.items() if p.optional]
        for absent in ([], optional):
            definition.specialise(absent=absent)


def test_the_readme_runs(tmp_path: Path) -> None:
    space = run("README.md", tmp_path)
    x, y = space["x"], space["y"]
    assert np.array_equal(y, 0.5 * x + 1)


def test_the_api_page_runs_without_a_device(tmp_path: Path) -> None:
    space = run("docs/python-api.md", tmp_path)
    w, x = space["w"].dequantize(), space["x"].dequantize()
    with open_device("interpreter") as device:
        y = np.empty((3, 100), np.float32)
        device.run(space["matmul_q8"], w=space["w"], x=space["x"], y=y)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4)
    assert space["result"].shape == y.shape


def defined(text: str, file: Path) -> KernelDefinition:
    """The kernel that a file with ``text`` defines."""
    file.write_text(text)
    space: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), space)
    (found,) = kernels(space)
    return found


def test_the_tutorial_runs_without_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, right, check, *_ = blocks("docs/tutorial.md", "python")
    (tmp_path / "add_norm.py").write_text(right)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "add_norm", raising=False)  # another test's file
    exec(check, {})
    assert len(right.split("@kernel")[1].splitlines()) < 40


def test_the_last_kernel_of_the_tutorial_is_the_first_one_quantised(tmp_path: Path) -> None:
    _, right, *_, last = blocks("docs/tutorial.md", "python")
    plain = defined(right, tmp_path / "add_norm.py")
    fused = defined(last, tmp_path / "add_norm_a8.py")
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, 3, 700)).astype(np.float32)
    w, quantised = rng.standard_normal(700).astype(np.float32), A8.empty(3, 700)
    total, y = np.empty_like(x), np.empty_like(x)
    with open_device("interpreter") as device:
        device.run(plain, x=x, r=r, w=w, total=total, y=y, eps=1e-5)
        device.run(fused, x=x, r=r, w=w, y=quantised, eps=1e-5)
    want = A8.quantize(y)
    assert np.array_equal(r, total)
    assert np.array_equal(quantised.q, want.q) and np.array_equal(quantised.scale, want.scale)


@pytest.mark.parametrize("name", ["docs/tutorial.md", "docs/errors.md"])
def test_the_message_that_is_shown_is_the_one_printed(name: str, tmp_path: Path) -> None:
    file = tmp_path / "add_norm.py"
    with pytest.raises(CompileError) as caught:
        defined(blocks("docs/tutorial.md", "python")[0], file).specialise()
    message = caught.value.text.replace(str(file), file.name)
    assert any(message in text for text in blocks(name, "")), message


@pytest.mark.parametrize(("name", "number"), [("docs/ir.md", 0), ("docs/tutorial.md", 1)])
def test_the_ir_that_is_shown_is_the_one_printed(name: str, number: int, tmp_path: Path) -> None:
    text = blocks(name, "python")[number]
    if "import" not in text:
        text = blocks("docs/language.md", "python")[0] + text
    lines = printed(defined(text, tmp_path / "kernel.py").specialise()).splitlines()
    (shown,) = (text for text in blocks(name, "") if " = walk %K" in text)
    left_out = ("...", "$ ")
    assert [t for t in shown.splitlines() if not t.startswith(left_out) and t not in lines] == []


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


@pytest.mark.parametrize("entry", shipped(), ids=lambda entry: entry.name)
def test_every_shipped_kernel_is_described(entry: Entry) -> None:
    text = read("docs/kernels.md")
    assert f"`{entry.name}`" in text and f"`{entry.module}.py`" in text
