"""No float that reaches logits or a token is computed by what differs between machines.

numpy's transcendental functions differ between processors, its sums and products of matrices
between builds, the C library's functions between systems. On the host there are single IEEE
operations, integers, and decimal numbers (in ``rope.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "ferro" / "models"
SOURCES = sorted(MODELS.rglob("*.py"))

FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arctan arctan2 arcsin arccos"
    " asin acos atan atan2 power pow float_power cbrt hypot logaddexp logaddexp2 erf erfc gamma"
    " lgamma".split()
)
SUMS = frozenset(
    "sum mean average std var cumsum cumprod prod nansum trapezoid dot inner outer vdot matmul"
    " tensordot einsum linalg convolve correlate interp fft norm".split()
)


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and what they use of what is banned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield node.lineno, "@"
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner in ("np", "numpy") and node.attr in FUNCTIONS | SUMS:
            yield node.lineno, f"{owner}.{node.attr}"
        if owner == "math" and node.attr in FUNCTIONS | {"fsum", "sumprod"}:
            yield node.lineno, f"math.{node.attr}"
        if owner not in ("np", "numpy", "math") and node.attr in SUMS - {"norm"}:
            yield node.lineno, f".{node.attr}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(MODELS)))
def test_floats_come_from_single_operations(path: Path) -> None:
    found = list(used(ast.parse(path.read_text())))
    assert not found, f"{path}: {found}"


@pytest.mark.parametrize(
    "line",
    [
        "np.exp(x)",
        "np.sum(x)",
        "x.sum()",
        "x.mean(axis=0)",
        "a @ b",
        "a @= b",
        "np.linalg.norm(x)",
        "x.dot(y)",
        "math.sin(x)",
        "math.fsum(x)",
    ],
)
def test_what_is_banned_is_found(line: str) -> None:
    assert list(used(ast.parse(line)))


def test_what_is_exact_is_not() -> None:
    allowed = "np.rint(x) + math.sqrt(y) * np.floor(z); sum(counts); step.ln(); (-step).exp()"
    assert not list(used(ast.parse(allowed)))
