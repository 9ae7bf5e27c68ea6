"""Every line of C says which line of the DSL it is about, whatever order it was written in."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ferro import codegen
from ferro.codegen import Config, Target
from ferro.codegen.writer import Mark, Namer, Writer
from ferro.dsl import ir, kernel, tl

FIRST, SECOND, OTHER = Mark(7, "a.py"), Mark(9, "a.py"), Mark(7, "b.py")


def places(text: str) -> Iterator[tuple[str, str, int]]:
    """Each line of C with the file and the line that a compiler would name."""
    file, number = "", 0
    for line in text.splitlines():
        found = re.match(r'#line (\d+)(?: "(.*)")?$', line)
        if found:
            file, number = found[2] or file, int(found[1])
        else:
            yield line.strip(), file, number
            number += 1


def text(writer: Writer) -> str:
    return "\n".join(writer.root.render())


def test_every_line_of_a_statement_is_at_its_line() -> None:
    w = Writer()
    w.mark = FIRST
    with w.block("for (;;)"):
        w.line("a;\nb;")
    w.mark = SECOND
    w.line("c;")
    found = {line: (file, n) for line, file, n in places(text(w)) if line != "}"}
    assert found == {
        "for (;;) {": ("a.py", 7), "a;": ("a.py", 7), "b;": ("a.py", 7), "c;": ("a.py", 9),
    }  # fmt: skip


def test_what_is_written_later_at_an_anchor_keeps_its_own_line() -> None:
    w = Writer()
    w.mark = FIRST
    place = w.anchor()
    w.line("a;")
    w.mark = OTHER
    with w.at(place):
        w.line("b;")
    w.mark = FIRST
    w.line("c;")
    assert list(places(text(w))) == [("b;", "b.py", 7), ("a;", "a.py", 7), ("c;", "a.py", 7)]


def test_lines_that_the_compiler_counts_right_are_not_marked() -> None:
    w = Writer()
    for number in (7, 8, 9):
        w.mark = Mark(number, "a.py")
        w.line("a;")
    assert text(w).splitlines() == ['#line 7 "a.py"', "a;", "a;", "a;"]


def test_a_file_is_named_once() -> None:
    w = Writer()
    for mark in (FIRST, SECOND, OTHER):
        w.mark = mark
        w.line("a;")
    marks = [line for line in text(w).splitlines() if line.startswith("#")]
    assert marks == ['#line 7 "a.py"', "#line 9", '#line 7 "b.py"']


@kernel
def twice(v):
    return v + v


@kernel
def tiles(x: tl.ptr[tl.f32, M, N], y: tl.out[tl.f32, M], B: tl.schedule[32, 64] = 32):
    row = tl.program_id(0, M)
    for c in tl.chunks(N, 64):
        state = tl.partials()
        for k0 in range(c.start, c.stop, B):
            k = k0 + tl.arange(0, B)
            state = tl.accumulate(state, twice(tl.load(x[row, k], mask=k < c.stop, other=0.0)))
        total = tl.combine(tl.add, tl.finish(state))
    tl.store(y[row], total)


@pytest.mark.parametrize("target", [Target("simt", 16), Target("simd", 8)], ids=lambda t: t.kind)
@pytest.mark.parametrize("config", [Config(), Config(split=2)], ids=str)
def test_a_whole_program_stays_inside_of_its_kernels(target: Target, config: Config) -> None:
    source = codegen.generate(tiles.specialise(), target, config).source
    body = source[source.index("#line") :]
    first, last = twice.line, tiles.line + 12
    lines = [(line, n) for line, _, n in places(body) if line.strip("{} ")]
    assert len(lines) > 20
    assert [line for line in lines if not first <= line[1] <= last] == []
    stores = [n for line, n in lines if re.search(r"\by\[.*\] = ", line)]
    store = next(op for op in ir.walk(tiles.specialise().body) if op.name == "store")
    assert stores == [store.span.line]


def test_names_of_any_script_are_names_in_c() -> None:
    namer = Namer()
    made = [namer.fresh(name) for name in ("größe", "gr_ße", "变量", "é", "²", "n٣", "x")]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) for name in made)
