"""Lines of generated C with nested blocks and anchors: places where lines can be added later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """The line of the DSL that a line of C is about."""

    line: int
    file: str


@dataclass(frozen=True)
class Line:
    text: str
    mark: Mark | None


class Lines:
    """A list of lines and nested ``Lines``; nested ones are indented by ``indent`` levels."""

    def __init__(self, indent: int = 0) -> None:
        self.indent = indent
        self.items: list[Line | Lines] = []

    def render(self, level: int = 0) -> Iterator[str]:
        """The text, with a ``#line`` wherever the compiler would count on to another line of the
        DSL; lines of brackets alone are left to its count."""
        file, number = "", 0
        for text, mark in self._flat(level):
            if mark is not None and text.strip("{} ") and (file, number) != (mark.file, mark.line):
                yield f"#line {mark.line}" + (f' "{mark.file}"' if mark.file != file else "")
                file, number = mark.file, mark.line
            yield text
            number += 1

    def _flat(self, level: int) -> Iterator[tuple[str, Mark | None]]:
        for item in self.items:
            if isinstance(item, Lines):
                yield from item._flat(level + item.indent)
            else:
                yield "    " * level + item.text, item.mark


class Writer:
    """Appends to the innermost open block; ``mark`` is what the lines to come are about."""

    def __init__(self) -> None:
        self.root = Lines()
        self.current = self.root
        self.mark: Mark | None = None

    def line(self, text: str) -> None:
        for part in text.strip("\n").split("\n"):
            if part.strip():
                self.current.items.append(Line(part.rstrip(), self.mark))

    def anchor(self) -> Lines:
        """A place here, at the level of the current block, that can be written to later."""
        lines = Lines()
        self.current.items.append(lines)
        return lines

    @contextmanager
    def at(self, lines: Lines) -> Iterator[None]:
        """Write into ``lines`` instead of the current block."""
        saved, self.current = self.current, lines
        try:
            yield
        finally:
            self.current = saved

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """``head`` followed by an indented body in braces."""
        self.line(f"{head} {{".strip())
        body = Lines(indent=1)
        self.current.items.append(body)
        with self.at(body):
            yield
        self.line("}")


_RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while half bool true false kernel global local constant private
    min max clamp mix step sign dot cross length distance normalize select all any shuffle
    convert as_int as_float fma mad abs rint floor ceil round trunc exp log sqrt rsqrt sin cos tan
    tanh erf pow fabs fmin fmax uint uchar ushort ulong size_t event_t image sampler pipe vload
    vstore barrier isnan isinf read_only write_only read_write generic lane sum main printf
    INFINITY NAN UNROLL IOTA NULL MAXFLOAT HUGE_VAL HUGE_VALF asm typeof quad complex
    imaginary vec_step""".split()
)
_TAKEN = re.compile(
    r"(ferro|as|convert|get|atomic|native|half|intel|sub_group|work_group|dot|vload|vstore|memory"
    r"|cl|CL|CLK|ATOMIC|M|FLT|DBL|HALF|S?CHAR|UCHAR|U?SHRT|U?INT|U?LONG)_|v(load|store)\d+$|.*_t$"
    r"|[A-Z][A-Z0-9]*_\w+$"  # macros
    r"|(char|uchar|short|ushort|int|uint|long|ulong|float|double|half)\d+(_u)?$"
)


class Namer:
    """Unique C identifiers that stay close to the names of the DSL."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "t"
        if base in _RESERVED or _TAKEN.match(base) or base[0].isdigit():
            base = f"v_{base}"
        count = self._used.get(base, 0)
        self._used[base] = count + 1
        if not count:
            return base
        return self.fresh(f"{base}_{count + 1}")
