"""Errors of the kernel language: what they carry, how they are printed, how they travel.

A ``Diagnostic`` is one finding at one span. A ``CompileError`` holds every finding of a kernel.
The text is rendered when the error is made, so that it survives pickling and edits of the file.
"""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ferro.dsl.types import Span

LIMIT = 20
_CONTEXT = 2


@dataclass(frozen=True)
class Diagnostic:
    """One finding. ``notes`` are labelled facts ("left: i32[4]"), ``help`` is one line."""

    code: str
    span: Span
    message: str
    help: str = ""
    notes: tuple[str, ...] = ()

    def render(self) -> str:
        """Position, message, source lines with the span underlined, notes, help."""
        lines = [f"{self.span}: error {self.code}: {self.message}", *_excerpt(self.span)]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  help: {self.help}"] if self.help else []
        return "\n".join(lines)


class CompileError(Exception):
    """A kernel that is not a program of the language; ``diagnostics`` holds all that was found."""

    exit_code = 2  # of a command: bad input

    def __init__(self, diagnostics: Iterable[Diagnostic], text: str | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.text = text if text is not None else _render_all(self.diagnostics)
        super().__init__(self.text)

    def __reduce__(self) -> tuple[type[CompileError], tuple[tuple[Diagnostic, ...], str]]:
        return (type(self), (self.diagnostics, self.text))

    def __str__(self) -> str:
        return "\n" + self.text


class Collector:
    """Gathers the diagnostics of one kernel, without repeats, up to ``LIMIT``."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Span], Diagnostic] = {}
        self._closed = False

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Note findings; raise at once when the limit is reached."""
        for diagnostic in diagnostics:
            self._found.setdefault((diagnostic.code, diagnostic.span), diagnostic)
            if self._closed or len(self._found) >= LIMIT:
                self.finish()

    def close(self, diagnostic: Diagnostic) -> NoReturn:
        """Note a last finding, behind which nothing can be read; raises CompileError."""
        self._closed = True
        self.add([diagnostic])
        raise AssertionError("a closed collector raises")

    def finish(self) -> None:
        """Raise CompileError if anything was found, in source order."""
        if self._found:
            raise CompileError(sorted(self._found.values(), key=position))

    def __bool__(self) -> bool:
        return bool(self._found)


def fail(
    code: str, span: Span, message: str, help: str = "", notes: Sequence[str] = ()
) -> NoReturn:
    """Raise a CompileError of one diagnostic."""
    raise CompileError([Diagnostic(code, span, message, help, tuple(notes))])


def remember(file: str, text: str) -> None:
    """Make the lines of a source that is not a file available to ``render``."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def closest(name: str, known: Iterable[str]) -> str:
    """The known name nearest to ``name``, or ""."""
    matches = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return matches[0] if matches else ""


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A help line that names the nearest known name, or ``otherwise``."""
    match = closest(name, known)
    return f"did you mean `{match}`?" if match else otherwise


def position(diagnostic: Diagnostic) -> tuple[str, int, int]:
    """What findings are sorted by: source order."""
    span = diagnostic.span
    return (span.file, span.line, span.column)


def _render_all(diagnostics: Sequence[Diagnostic]) -> str:
    return "\n\n".join(d.render() for d in diagnostics)


def _excerpt(span: Span) -> list[str]:
    source = linecache.getlines(span.file)
    if not 1 <= span.line <= len(source):
        return []
    last = max(span.line, min(span.end_line, span.line + 3, len(source)))
    first = max(1, span.line - _CONTEXT)
    width = len(str(last))
    lines: list[str] = []
    for number in range(first, last + 1):
        text = source[number - 1].rstrip("\n").expandtabs(1)
        lines.append(f"  {number:>{width}} | {text}".rstrip())
        if number >= span.line:
            lines.append(f"  {'':>{width}} | {_underline(span, number, text)}")
    return lines


def _underline(span: Span, number: int, text: str) -> str:
    indent = len(text) - len(text.lstrip())
    start = span.column - 1 if number == span.line else indent
    end = span.end_column - 1 if number == span.end_line else len(text)
    return " " * start + "^" * max(1, end - start)
