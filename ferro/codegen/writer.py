"""Lines of generated C with nested blocks and anchors: places where lines can be added later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """A list of lines and nested ``Lines``; nested ones are indented by ``indent`` levels."""

    def __init__(self, indent: int = 0) -> None:
        self.indent = indent
        self.items: list[str | Lines] = []

    def render(self, level: int = 0) -> Iterator[str]:
        for item in self.items:
            if isinstance(item, Lines):
                yield from item.render(level + item.indent)
            elif item.startswith("#"):
                yield item
            else:
                yield "    " * level + item


class Writer:
    """Appends to the innermost open block."""

    def __init__(self) -> None:
        self.root = Lines()
        self.current = self.root
        self.mark = ""
        self._marked = ""

    def _place(self) -> None:
        """Write the pending ``#line`` in front of the first line that it is about."""
        if self.mark != self._marked:
            self.current.items.append(self.mark)
            self._marked = self.mark

    def line(self, text: str) -> None:
        for part in text.strip("\n").split("\n"):
            if part.strip():
                self._place()
                self.current.items.append(part.rstrip())

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
        self._place()
        for part in f"{head} {{".strip().split("\n"):
            self.current.items.append(part)
        body = Lines(indent=1)
        self.current.items.append(body)
        with self.at(body):
            yield
        self.current.items.append("}")

    def text(self) -> str:
        return "\n".join(self.root.render()) + "\n"


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
        base = re.sub(r"\W", "_", wanted).strip("_") or "t"
        if base in _RESERVED or _TAKEN.match(base) or base[0].isdigit():
            base = f"v_{base}"
        count = self._used.get(base, 0)
        self._used[base] = count + 1
        if not count:
            return base
        return self.fresh(f"{base}_{count + 1}")
