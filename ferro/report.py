"""How commands speak: aligned tables, JSON for scripts, a progress bar on a terminal.

Owns formatting only. Results go to standard output, notes and progress to standard error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TextIO


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under their headings; a column of numbers is aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [
        bool(cells) and all(_numeric(row[i]) for row in cells if row[i] != "-")
        for i in range(len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), *map(line, cells)])


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _numeric(text: str) -> bool:
    return text.lstrip("+-").replace(".", "", 1).split("e")[0].isdigit()


def to_json(value: Any) -> str:
    """``value`` as indented JSON; dataclasses become objects, sets sorted lists."""
    return json.dumps(value, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return str(value)


class OutputFailed(Exception):
    """Standard output that takes nothing more: closed, or on a disk that is full."""

    exit_code = 1

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write standard output: {reason}")


def emit(text: str) -> None:
    """Prints a result. Raises OutputFailed, BrokenPipeError."""
    show(f"{text}\n")


def show(text: str, flush: bool = False) -> None:
    """Writes a part of a result. Raises OutputFailed, BrokenPipeError."""
    if sys.stdout is None:
        raise OutputFailed("it is closed")
    try:
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.strerror or str(error)) from None


def note(text: str) -> None:
    """Prints a remark that is no result."""
    print(text, file=sys.stderr)


def sentence(error: BaseException) -> str:
    """What an error says, in words for people."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def failure(error: BaseException, code: int) -> dict[str, Any]:
    """An error for scripts: its kind, the exit code, its text; the diagnostics of a kernel and the
    build log of a driver where there are any."""
    found: dict[str, Any] = {"kind": type(error).__name__, "code": code}
    found["message"] = sentence(error).strip()
    if log := getattr(error, "log", ""):
        found["log"] = log
    if diagnostics := getattr(error, "diagnostics", ()):
        found["diagnostics"] = list(diagnostics)
    return found


class Progress:
    """A bar on a terminal, silence elsewhere. Use as a context manager and call ``step``.

    ``delay`` keeps the bar back for as many seconds: what is quick needs none.
    """

    WIDTH = 30

    def __init__(
        self, total: int, label: str = "", stream: TextIO | None = None, delay: float = 0.0
    ) -> None:
        self.total = max(total, 1)
        self.label = label
        self.done = 0
        self.stream = stream if stream is not None else sys.stderr
        self.delay = delay
        self.shown = self.stream.isatty()
        self.drawn = False
        self.started = time.monotonic()

    def step(self, text: str = "", count: int = 1) -> None:
        """Counts ``count`` more as done and redraws with ``text`` at the end."""
        self.done = min(self.done + count, self.total)
        seconds = time.monotonic() - self.started
        if self.shown and seconds >= self.delay:
            filled = self.WIDTH * self.done // self.total
            bar = "#" * filled + "." * (self.WIDTH - filled)
            line = f"{self.label} [{bar}] {self.done}/{self.total} {seconds:.0f}s {text}"
            self.stream.write(f"\r{line[:119]}\x1b[K")
            self.stream.flush()
            self.drawn = True

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
