"""Vectors into files: what is done is kept beside the result until all is, so that a run that was
cut off goes on where it stopped.

``OUT.part`` holds rows of one number (that of the record, int64) and a vector (float32); behind a
cut only whole rows count. ``OUT.part.json`` says what they are vectors of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ferro import system
from ferro.commands import UsageError
from ferro.folders import naming, written_atomically

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.void]
CHUNK = 4096  # rows


def row_type(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([("record", "<i8"), ("vector", "<f4", (dimensions,))])


class Partial:
    """The rows that are done. Use as a context manager; ``finish`` makes the result of them."""

    def __init__(self, out: Path, dimensions: int, about: dict[str, Any]) -> None:
        """``about`` is what the vectors depend on: rows of something else begin anew."""
        self.out, self._type = out, row_type(dimensions)
        self._path = out.with_name(f"{out.name}.part")
        self._note = out.with_name(f"{out.name}.part.json")
        self._about = about
        self._file: BinaryIO
        self._finished = False

    def __enter__(self) -> Partial:
        """Raises OSError, UsageError where another run has the same result."""
        self._file = self._locked()
        try:
            with naming(self._path):
                known = self._known()
                self.rows = whole = self._size() // self._type.itemsize if known else 0
                self._file.truncate(whole * self._type.itemsize)
                self._file.seek(0, os.SEEK_END)
            if not known:
                self._note.write_text(json.dumps(self._about))
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._finished or not self.rows:
            self._remove()
        try:
            self._file.close()
        except OSError:  # what could not be written before cannot be now
            if error is None:
                raise

    @property
    def next_record(self) -> int:
        """The number of the first record that is not done, from 0."""
        if not self.rows:
            return 0
        self._file.seek((self.rows - 1) * self._type.itemsize)
        last = np.frombuffer(self._file.read(self._type.itemsize), self._type)
        self._file.seek(0, os.SEEK_END)
        return int(last["record"][0]) + 1

    def add(self, records: list[int], vectors: Floats) -> None:
        """Rows that are done now. Raises OSError."""
        rows = np.empty(len(records), self._type)
        rows["record"], rows["vector"] = records, vectors
        with naming(self._path):
            self._file.write(rows.tobytes())
            self._file.flush()
        self.rows += len(records)

    def finish(self, dimensions: int) -> None:
        """Write the result; what was kept goes at the end. Raises OSError, UsageError."""
        write = WRITERS[self.out.suffix.lower()]
        with written_atomically(self.out) as file:
            write(file, self, dimensions)
        self._finished = True

    @property
    def missing(self) -> int:
        """How many rows have no vector."""
        return sum(int(np.isnan(rows["vector"][:, 0]).sum()) for rows in self.chunks())

    def chunks(self) -> Iterator[Rows]:
        """All rows, some at a time."""
        self._file.seek(0)
        while data := self._file.read(CHUNK * self._type.itemsize):
            yield np.frombuffer(data, self._type)

    def _remove(self) -> None:
        for path in (self._path, self._note):
            path.unlink(missing_ok=True)

    def _locked(self) -> BinaryIO:
        """The file of rows, which no other run has: two would write into each other's rows. The
        lock goes with the process. Raises OSError, UsageError."""
        with naming(self._path):
            while True:
                file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
                try:
                    if not system.lock(file.fileno()):
                        raise UsageError(f"another run is writing {self.out}")
                    if self._is_at_its_path(file):
                        return file
                except BaseException:
                    file.close()
                    raise
                file.close()

    def _is_at_its_path(self, file: BinaryIO) -> bool:
        """Whether the run that had the lock before has not removed the file since."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _known(self) -> bool:
        try:
            return json.loads(self._note.read_text()) == self._about
        except (OSError, ValueError):
            return False


def numpy_array(file: BinaryIO, done: Partial, dimensions: int) -> None:
    """float32 [rows, dimensions]; records without a vector are rows of NaN."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (done.rows, dimensions)}
    np.lib.format.write_array_header_1_0(file, header)
    for rows in done.chunks():
        file.write(np.ascontiguousarray(rows["vector"]).tobytes())


def json_lines(file: BinaryIO, done: Partial, dimensions: int) -> None:
    """An object a line."""
    for each in objects(done):
        file.write(f"{json.dumps(each)}\n".encode())


def json_array(file: BinaryIO, done: Partial, dimensions: int) -> None:
    """One array of the same objects."""
    for i, each in enumerate(objects(done)):
        file.write(f"{',' if i else '['}\n{json.dumps(each)}".encode())
    file.write(b"\n]\n" if done.rows else b"[]\n")


def parquet(file: BinaryIO, done: Partial, dimensions: int) -> None:
    """Columns ``index`` (int64) and ``embedding`` (a list of float32, null without a vector)."""
    try:
        import pyarrow
        from pyarrow import parquet as writer
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'ferro[parquet]'") from None
    kind = pyarrow.list_(pyarrow.float32())
    schema = pyarrow.schema([("index", pyarrow.int64()), ("embedding", kind)])
    with writer.ParquetWriter(file, schema) as table:
        for rows in done.chunks():
            vectors = [None if missing(v) else v for v in rows["vector"]]
            columns = [pyarrow.array(rows["record"]), pyarrow.array(vectors, kind)]
            table.write_batch(pyarrow.record_batch(columns, schema=schema))


def objects(done: Partial) -> Iterator[dict[str, Any]]:
    """{"index": number of the record from 0, "embedding": numbers, or null where there are none}"""
    for rows in done.chunks():
        for row in rows:
            vector = row["vector"]
            yield shown(int(row["record"]), None if missing(vector) else vector)


def shown(record: int, vector: Floats | None) -> dict[str, Any]:
    # float32 as the shortest decimals that give it back
    numbers = None if vector is None else [float(str(x)) for x in vector]
    return {"index": record, "embedding": numbers}


def missing(vector: Floats) -> bool:
    """Whether a record has no vector."""
    return bool(np.isnan(vector[0]))


WRITERS: dict[str, Callable[[BinaryIO, Partial, int], None]] = {
    ".npy": numpy_array,
    ".json": json_array,
    ".jsonl": json_lines,
    ".parquet": parquet,
}


@dataclass(frozen=True)
class Source:
    """What a run reads, as far as another run can tell whether it is the same."""

    name: str
    size: int
    modified: int

    @classmethod
    def of(cls, name: str) -> Source:
        """Raises OSError."""
        stat = os.stat(name)
        return cls(os.path.abspath(name), stat.st_size, stat.st_mtime_ns)
