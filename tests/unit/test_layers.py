"""The shape of the code base: imports point down only, and each kind of text stays in its place."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("dsl", "codegen", "runtime", "autotune", "models", "serve", "commands", "cli")
# What may not import a module of Ferro's layers at all, and what may be imported from anywhere.
LEAVES = {"ferro/report.py", "ferro/folders.py", "ferro/temporary.py", "ferro/system.py"}
COMMAND_LEVEL = {"ferro/__main__.py"}
HARD_LIMIT = 600
TEMPLATE_LIMIT = 40

SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("ferro", "kernels_src", "autotune")
    for path in (ROOT / folder).rglob("*.py")
)
TEMPLATES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.cl", "*.jinja", "*.j2", "*.cl.*")
    for path in (ROOT / "ferro").rglob(pattern)
)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(path.parts[: -node.level]) + "." if node.level else ""
            yield from (f"{base}{node.module or ''}.{alias.name}" for alias in node.names)


def layer(dotted: str) -> str:
    """The layer that a module belongs to, or "" for one that is no layer's."""
    parts = dotted.split(".")
    if parts[0] == "autotune":
        return "autotune"
    return parts[1] if parts[0] == "ferro" and len(parts) > 1 and parts[1] in LAYERS else ""


def own_layer(path: Path) -> str:
    if path.as_posix() in COMMAND_LEVEL:
        return "cli"
    return layer(".".join(path.with_suffix("").parts))


def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), filename=str(path))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_point_down(path: Path) -> None:
    own = own_layer(path)
    for name in imported(path):
        other = layer(name)
        if path.parts[0] == "kernels_src":
            assert other in ("", "dsl"), f"{path} imports {name}"
            assert name.split(".")[0] not in ("pyopencl", "jinja2"), f"{path} imports {name}"
        elif path.as_posix() in LEAVES:
            assert not other, f"{path} imports {name}"
        elif own and other:
            assert LAYERS.index(other) <= LAYERS.index(own), f"{path} imports {name}"


def test_importing_ferro_loads_nothing_else() -> None:
    script = "import ferro, sys; print(sorted(m for m in sys.modules if m.startswith('ferro.')))"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.split() == ["[]"], found


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_pyopencl_is_the_runtime_s_alone(path: Path) -> None:
    names = {name.split(".")[0] for name in imported(path)}
    assert "pyopencl" not in names or own_layer(path) == "runtime"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_files_stay_short_and_finished(path: Path) -> None:
    text = (ROOT / path).read_text()
    assert text.count("\n") <= HARD_LIMIT
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError", text)


OPENCL = re.compile(r"\b__kernel\b|\bget_(global|local|group)_id\b|\b__(global|local) ")


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_opencl_text_stays_in_codegen_and_probes(path: Path) -> None:
    name = path.as_posix()
    if name.startswith("ferro/codegen/") or re.match(r"ferro/runtime/(probe|limits)", name):
        return
    assert not OPENCL.search((ROOT / path).read_text())


@pytest.mark.parametrize("path", TEMPLATES, ids=str)
def test_templates_are_short_and_know_no_kernel(path: Path) -> None:
    text = (ROOT / path).read_text()
    assert text.count("\n") < TEMPLATE_LIMIT
    assert not re.search(r"attention|softmax|rmsnorm|matmul|rotary|\bkeys\b", text, re.I)


def test_code_generators_know_no_kernel() -> None:
    names = {
        node.name
        for path in SOURCES
        if path.parts[0] == "kernels_src"
        for node in parse(path).body
        if isinstance(node, ast.FunctionDef)
    }
    general = {"add", "dot", "scale", "copy", "exp", "log", "merge"}  # also words of the language
    for path in SOURCES:
        if path.parts[:2] == ("ferro", "codegen"):
            words = {
                node.value
                for node in ast.walk(parse(path))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            assert not words & (names - general), path


# numpy's own versions differ between processors, and its sums between builds.
BANNED = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arctan arctan2 power cbrt"
    " float_power hypot logaddexp mean average std var cumsum cumprod nansum trapezoid inner"
    " vdot tensordot linalg convolve correlate interp fft".split()
)


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if own_layer(p) in ("dsl", "codegen")], ids=str
)
def test_host_arithmetic_is_the_language_s_own(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = node.value.id in ("np", "numpy") and node.attr in BANNED
            assert not used, f"{path}:{node.lineno} np.{node.attr}"
