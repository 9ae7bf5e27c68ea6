"""Every message of the front end, word by word, and how errors travel."""

from __future__ import annotations

import pickle
import textwrap
from collections.abc import Callable

import pytest

from ferro.dsl import CompileError, Diagnostic, kernel, tl
from ferro.dsl.diagnostics import LIMIT, Collector
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.types import Span
from tests.unit.dsl.error_cases import BODIES, HEADER, SOURCES

Golden = Callable[[str, str], None]


def errors(text: str, **options: object) -> CompileError:
    with pytest.raises(CompileError) as caught:
        KernelDefinition.from_source(text, "kernel.py").specialise(**options)
    return caught.value


def body(statements: str) -> str:
    return HEADER + textwrap.indent(statements, "    ") + "\n"


@pytest.mark.parametrize("name", BODIES)
def test_message_in_body(name: str, golden: Golden) -> None:
    golden(name, errors(body(BODIES[name])).text + "\n")


@pytest.mark.parametrize("name", SOURCES)
def test_message_of_declaration(name: str, golden: Golden) -> None:
    text, options = SOURCES[name]
    golden(name, errors(text, **options).text + "\n")


@pytest.mark.parametrize("name", BODIES)
def test_every_finding_has_a_code_a_place_and_a_help_line(name: str) -> None:
    for diagnostic in errors(body(BODIES[name])).diagnostics:
        assert diagnostic.code.startswith("FER")
        assert diagnostic.span.file == "kernel.py"
        assert diagnostic.span.line >= 1
        assert diagnostic.help


@kernel
def scale(v):
    return v * tl.arange(0, 32)


def test_an_error_in_an_inlined_function_names_both_places() -> None:
    text = (
        "def f(x: tl.ptr[f32, 32], y: tl.out[f32, 32]):\n"
        "    i = tl.arange(0, 32)\n"
        "    tl.store(y[i], scale(tl.load(x[i])))\n"
    )
    with pytest.raises(CompileError) as caught:
        KernelDefinition.from_source(text, "caller.py", {"scale": scale}).specialise()
    (found,) = caught.value.diagnostics
    assert found.code == "FER201"
    assert found.span.file == __file__
    assert found.span.line == scale.line + 2
    assert "inlined at caller.py:3:20" in found.notes


def test_the_span_is_that_of_the_file_for_indented_kernels() -> None:
    class Kernels:
        @kernel
        def bad(x: tl.ptr[f32, N]):
            tl.load(x[missing])

    with pytest.raises(CompileError) as caught:
        Kernels.bad.specialise()
    (found,) = caught.value.diagnostics
    with open(__file__) as file:
        line = file.readlines()[found.span.line - 1]
    assert line[found.span.column - 1 : found.span.end_column - 1] == "missing"


def test_errors_survive_pickling() -> None:
    error = errors(body(BODIES["several_errors"]))
    copy = pickle.loads(pickle.dumps(error))
    assert copy.diagnostics == error.diagnostics
    assert str(copy) == str(error)


def test_at_most_twenty_errors() -> None:
    error = errors(body("\n".join(f"a{n} = missing{n}" for n in range(LIMIT + 5))))
    assert len(error.diagnostics) == LIMIT


def test_errors_come_in_source_order() -> None:
    lines = [d.span.line for d in errors(body(BODIES["several_errors"])).diagnostics]
    assert lines == sorted(lines) and len(lines) == 4


def test_the_same_finding_is_reported_once() -> None:
    text = body("for i in tl.static_range(5):\n    z = missing")
    assert len(errors(text).diagnostics) == 1


def test_collector_raises_only_what_it_was_given() -> None:
    Collector().finish()
    collector = Collector()
    collector.add([Diagnostic("FER999", Span("a.py", 1, 1, 1, 2), "message")])
    with pytest.raises(CompileError, match="FER999"):
        collector.finish()


def test_a_span_of_several_lines_is_underlined_on_each() -> None:
    text = body("z = tl.fma(v,\n           k,\n           v)")
    lines = errors(text).text.splitlines()
    assert sum(set(line.split("|")[-1].strip()) == {"^"} for line in lines if "|" in line) == 3
