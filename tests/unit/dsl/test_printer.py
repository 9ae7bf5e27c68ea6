"""Text of kernels, and the bytes that stand for a kernel in caches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from ferro.dsl import ir, printer
from ferro.dsl.canonical import canonical, digest
from ferro.dsl.kernel import KernelDefinition

Golden = Callable[[str, str], None]

SCALE = """@kernel
def scale(x: tl.ptr[f32, M, K], y: tl.out[f32, M, K], factor: tl.f32, first: tl.i32[0, 9],
          BLOCK: tl.schedule[32, 64] = 32):
    row = tl.program_id(0, M)
    for k0 in range(first, K, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < K, other=0.0)
        if factor > 0.0:
            tl.store(y[row, k], tl.abs(v * factor), mask=k < K)
"""


def specialised(text: str = SCALE, file: str = "kernel.py", **constants: Any) -> ir.Kernel:
    return KernelDefinition.from_source(text, file).specialise(**constants)


def test_text(golden: Golden) -> None:
    golden("printed_scale", printer.text(specialised()))


def test_library_functions_are_shown() -> None:
    text = printer.text(specialised(SCALE.replace("tl.abs", "tl.sqrt")))
    assert "call %" in text
    assert "\nfunction sqrt(%x: f32) {" in text


def test_spans_are_shown_on_request() -> None:
    lines = printer.text(specialised(), spans=True).splitlines()
    (store,) = [line for line in lines if line.strip().startswith("store")]
    assert store.endswith("# 9:13")


def test_one_operation() -> None:
    op = next(o for o in ir.walk(specialised().body) if o.name == "program_id")
    assert printer.op_text(op) == "%row: i32 = program_id axis=0"


def test_text_is_deterministic() -> None:
    assert printer.text(specialised()) == printer.text(specialised())


@pytest.mark.parametrize(
    "pair", [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ((1, 2), (1, (2,))), ((), "()")]
)
def test_different_attributes_have_different_text(pair: tuple[Any, Any]) -> None:
    assert printer.attribute(pair[0]) != printer.attribute(pair[1])


def test_equal_attributes_have_one_text() -> None:
    assert printer.attribute({"b": 1, "a": math.nan}) == printer.attribute({"a": math.nan, "b": 1})
    assert printer.attribute(frozenset({2, 1})) == printer.attribute({1, 2})


def test_names_comments_and_places_do_not_count() -> None:
    other = SCALE.replace("    row =", "    # where\n    row =").replace("k0", "begin")
    other = other.replace(" v ", " value ").replace("(v *", "(value *")
    assert canonical(specialised(other, "elsewhere.py")) == canonical(specialised())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* factor)", "* factor + -0.0)"),
        ("k < K, other", "k <= K, other"),
        ("other=0.0", "other=-0.0"),
        ("tl.abs", "tl.rint"),
        ("tl.i32[0, 9]", "tl.i32[0, 8]"),
        ("def scale", "def other"),
    ],
)
def test_what_changes_the_code_changes_the_bytes(old: str, new: str) -> None:
    assert old in SCALE
    assert digest(specialised(SCALE.replace(old, new))) != digest(specialised())


def test_constants_count() -> None:
    assert digest(specialised(BLOCK=64)) != digest(specialised(BLOCK=32))
