"""Texts out of files: lines, JSONL, a column of CSV or Parquet, one record after the other.

Nothing is read ahead by more than a record (Parquet: a batch), so files may be of any size.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ferro.commands import UsageError

LONGEST = 16 << 20  # bytes of a record
USUAL_COLUMNS = ("text", "content", "document", "sentence", "input")
BATCH = 256  # records of Parquet
MARK = b"\xef\xbb\xbf"  # what spreadsheets put in front of UTF-8


@dataclass(frozen=True)
class Record:
    """One text, or what is ``wrong`` with the record in its place; ``title`` is a document's."""

    text: str = ""
    wrong: str = ""
    title: str | None = None


@dataclass(frozen=True)
class Columns:
    """Which fields of a record are its text and its title."""

    text: str | None = None
    title: str | None = None


Reader = Callable[[BinaryIO, Columns], Iterator[Record]]


def lines(file: BinaryIO, columns: Columns) -> Iterator[Record]:
    """A text a line."""
    for raw in _raw_lines(file):
        yield _decoded(raw)


def jsonl(file: BinaryIO, columns: Columns) -> Iterator[Record]:
    """A JSON value a line: a text, or an object with a field for it."""
    for raw in _raw_lines(file):
        found = _decoded(raw)
        if found.wrong:
            yield found
            continue
        if not found.text.strip():
            continue
        try:
            value = json.loads(found.text)
        except (ValueError, RecursionError) as error:
            yield Record(wrong=f"no JSON: {str(error)[:80]}")
            continue
        yield _of_value(value, columns)


def comma_separated(file: BinaryIO, columns: Columns) -> Iterator[Record]:
    """A column of CSV, whose first row names the columns. Raises UsageError."""
    csv.field_size_limit(LONGEST)
    text = (line.decode("utf-8", "surrogateescape") for line in _unlimited_lines(file))
    # strict: a quote that never closes would take all records behind it for its text
    rows = csv.reader(text, strict=True)
    try:
        names = next(rows, [])
    except csv.Error as error:
        raise UsageError(f"no CSV: {error} in its first row") from None
    wanted = _column(names, columns.text)
    titled = None if columns.title is None else _index(names, columns.title)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield Record(wrong=f"no CSV: {error}")
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(names):
            yield Record(wrong=f"{len(row)} fields instead of {len(names)}")
            continue
        yield _checked(row[wanted], None if titled is None else row[titled])


def parquet(file: BinaryIO, columns: Columns) -> Iterator[Record]:
    """A column of Parquet. Raises UsageError."""
    reader = _pyarrow()
    try:
        table = reader.ParquetFile(file)
        names = table.schema_arrow.names
        text = names[_column(names, columns.text)]
        wanted = [text] if columns.title is None else [text, names[_index(names, columns.title)]]
        for batch in table.iter_batches(BATCH, columns=wanted):
            for i in range(batch.num_rows):
                yield _of_row(batch, i, Columns(text, columns.title))
    except (OSError, ValueError) as error:
        # pyarrow's own errors are of these kinds
        raise UsageError(f"no Parquet: {str(error)[:200]}") from None


FORMATS: dict[str, Reader] = {
    "lines": lines,
    "jsonl": jsonl,
    "csv": comma_separated,
    "parquet": parquet,
}
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def format_of(name: str) -> str:
    """The format that a file's name tells; lines where it tells none."""
    return SUFFIXES.get(Path(name).suffix.lower(), "lines")


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """A file, or standard input for "-". Raises OSError, UsageError."""
    if name == "-":
        if sys.stdin is None:
            raise UsageError("--in -: standard input is closed")
        yield sys.stdin.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"--in {path}: this is a folder")
    with path.open("rb") as file:
        yield file


def _raw_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Lines without their ends; None for one that is too long."""
    source = _unlimited_lines(file)
    for raw in source:
        if len(raw) <= LONGEST:
            yield raw.removesuffix(b"\n").removesuffix(b"\r")
            continue
        while raw and not raw.endswith(b"\n"):
            raw = next(source, b"")
        yield None


def _unlimited_lines(file: BinaryIO) -> Iterator[bytes]:
    """As CSV needs them, whose fields may hold line ends; too long ones are cut. Without the mark
    of UTF-8."""
    first = file.readline(len(MARK) + LONGEST + 1).removeprefix(MARK)
    if first:
        yield first
    while raw := file.readline(LONGEST + 1):
        yield raw


def _decoded(raw: bytes | None) -> Record:
    if raw is None:
        return Record(wrong=f"longer than {LONGEST >> 20} MiB")
    try:
        return Record(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Record(wrong=f"no UTF-8 at byte {error.start}")


def _of_row(batch: Any, row: int, columns: Columns) -> Record:
    """The record of a row of Parquet, whose texts need be no UTF-8."""
    try:
        named = zip(batch.schema.names, batch.columns, strict=True)
        return _of_value({name: column[row].as_py() for name, column in named}, columns)
    except UnicodeDecodeError as error:
        return Record(wrong=f"no UTF-8 at byte {error.start}")


def _of_value(value: Any, columns: Columns) -> Record:
    """The record of a JSON value or of a row by names."""
    if isinstance(value, str):
        return _checked(value)
    if not isinstance(value, dict):
        return Record(wrong=f"a text or an object was expected, got {type(value).__name__}")
    names = [columns.text] if columns.text else [n for n in USUAL_COLUMNS if n in value]
    if not names or names[0] not in value:
        return Record(wrong=f"no field {columns.text or ' or '.join(USUAL_COLUMNS)}")
    title = value.get(columns.title) if columns.title else None
    return _checked(value[names[0]], title)


def _checked(text: object, title: object = None) -> Record:
    if not isinstance(text, str):
        return Record(wrong=f"its text is no text: {type(text).__name__}")
    if title is not None and not isinstance(title, str):
        return Record(wrong=f"its title is no text: {type(title).__name__}")
    for each in (text, title or ""):
        try:
            each.encode("utf-8")
        except UnicodeEncodeError:
            return Record(wrong="no UTF-8")
    return Record(text, title=title or None)


def _column(names: list[str], wanted: str | None) -> int:
    if wanted is not None:
        return _index(names, wanted)
    found = next((name for name in USUAL_COLUMNS if name in names), None)
    if found is None and len(names) == 1:
        return 0
    if found is None:
        raise UsageError(f"name the column of the texts with --column (there are: {_list(names)})")
    return names.index(found)


def _index(names: list[str], wanted: str) -> int:
    if wanted not in names:
        raise UsageError(f"there is no column `{wanted}` (there are: {_list(names)})")
    return names.index(wanted)


def _list(names: list[str]) -> str:
    return ", ".join(names[:20]) or "none"


def _pyarrow() -> Any:
    try:
        from pyarrow import parquet as found
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'ferro[parquet]'") from None
    return found
