"""The program cache: generated source, entries and the vendor's binary of a kernel, on disk.

An entry is one file named after the sha256 of everything that reaches the compiler. It is written
to a temporary file and moved into place, carries a checksum, and is ignored (and built again) when
anything in it is wrong. A folder that cannot be written only costs a warning.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ferro.codegen.program import Program
from ferro.folders import cache_folder, write_atomically
from ferro.runtime.programs import from_json, to_json

MAGIC = b"ferro program 1\n"
SUFFIX = ".program"
LIMIT = 1 << 30

log = logging.getLogger(__name__)
_told: set[Path] = set()  # folders whose trouble this process was told of


@dataclass(frozen=True)
class Entry:
    """One cached program. ``parts`` are the key's parts; ``reason`` says why it was built."""

    path: Path
    kernel: str
    parts: dict[str, str]
    reason: str
    built: float
    used: float
    size: int

    @property
    def key(self) -> str:
        return self.path.stem.rsplit("-", 1)[-1]


class ProgramCache:
    """Programs in ``folder`` (default: the user's cache folder), at most ``limit`` bytes of them;
    the ones that were not used for longest go first."""

    def __init__(self, folder: Path | None = None, limit: int = LIMIT) -> None:
        self.folder = folder or cache_folder("programs")
        self.limit = limit

    def load(self, kernel: str, parts: Mapping[str, str]) -> tuple[Program, bytes] | None:
        """The program and binary of these key parts, or None."""
        path = self._path(kernel, parts)
        try:
            data = path.read_bytes()
            header, body = unpack(data)
        except (OSError, ValueError, KeyError):
            return None
        if header["parts"] != dict(parts):
            return None
        try:
            os.utime(path)
        except OSError:
            pass
        return from_json(header["program"]), body

    def store(self, kernel: str, parts: Mapping[str, str], program: Program, binary: bytes) -> str:
        """Keep a program; returns why it had to be built. Never fails a run."""
        reason = self.reason(kernel, parts)
        header = {
            "kernel": kernel,
            "parts": dict(parts),
            "reason": reason,
            "built": time.time(),
            "program": to_json(program),
        }
        try:
            write_atomically(self._path(kernel, parts), pack(header, binary))
            self._trim()
        except OSError as error:
            self._warn(error)
        return reason

    def reason(self, kernel: str, parts: Mapping[str, str]) -> str:
        """What differs from the nearest entry of this kernel that is there."""
        if self._path(kernel, parts).exists():
            return "the entry was damaged or refused by the driver"
        entries = list(self.entries(kernel))
        if not entries:
            return "never built before"
        nearest = min(entries, key=lambda e: (len(differences(e.parts, parts)), -e.built))
        return "; ".join(differences(nearest.parts, parts))

    def entries(self, kernel: str | None = None) -> Iterator[Entry]:
        """Every readable entry, of one kernel or of all, oldest build first."""
        found = []
        pattern = f"{safe(kernel)}-*{SUFFIX}" if kernel else f"*{SUFFIX}"
        for path in self.folder.glob(pattern):
            entry = read_entry(path)
            if entry is not None and kernel in (None, entry.kernel):
                found.append(entry)
        yield from sorted(found, key=lambda e: e.built)

    def why(self, kernel: str) -> list[Entry]:
        """The builds of one kernel, newest first, each with its reason."""
        return list(self.entries(kernel))[::-1]

    def remove(self, kernel: str | None = None) -> int:
        """Delete the entries of one kernel or all; returns how many."""
        count = 0
        pattern = f"{safe(kernel)}-*{SUFFIX}" if kernel else f"*{SUFFIX}"
        for path in self.folder.glob(pattern):
            entry = read_entry(path) if kernel else None
            if kernel is None or entry is None or entry.kernel == kernel:
                path.unlink(missing_ok=True)
                count += 1
        return count

    def size(self) -> int:
        """Bytes on disk."""
        return sum(status.st_size for _, status in self._files())

    def _path(self, kernel: str, parts: Mapping[str, str]) -> Path:
        return self.folder / f"{safe(kernel)}-{digest(parts)}{SUFFIX}"

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                found.append((path, path.stat()))
            except OSError:
                continue  # another process removed it
        return found

    def _trim(self) -> None:
        files = self._files()
        total = sum(status.st_size for _, status in files)
        for path, status in sorted(files, key=lambda f: f[1].st_mtime):
            if total <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size

    def _warn(self, error: OSError) -> None:
        if self.folder not in _told:
            _told.add(self.folder)
            log.warning(
                "compiled programs are not kept, every start compiles anew: %s cannot be written "
                "(%s); set FERRO_CACHE_DIR to a folder that can",
                self.folder,
                error.strerror or error,
            )


def digest(parts: Mapping[str, str]) -> str:
    """The name of an entry: 40 hex digits of the sha256 over all parts."""
    text = json.dumps(dict(parts), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The parts that changed, as "name: old -> new"; hashes are shortened."""
    names = sorted({*old, *new})
    changed = [name for name in names if old.get(name) != new.get(name)]
    return [f"{name}: {short(old.get(name))} -> {short(new.get(name))}" for name in changed]


def short(value: str | None) -> str:
    if value is None:
        return "none"
    is_hash = len(value) == 64 and all(c in "0123456789abcdef" for c in value)
    return value[:12] if is_hash else value or "none"


def safe(kernel: str) -> str:
    """The kernel's name as the beginning of a file name."""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in kernel)[:60]


def pack(header: Mapping[str, Any], body: bytes) -> bytes:
    """An entry's bytes: magic, checksum of the rest, length of the header, header, binary."""
    text = json.dumps(header, sort_keys=True).encode()
    rest = len(text).to_bytes(8, "little") + text + body
    return MAGIC + hashlib.sha256(rest).digest() + rest


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and binary of an entry. Raises ValueError if the bytes are damaged."""
    start = len(MAGIC) + 32
    rest = data[start:]
    if not data.startswith(MAGIC) or hashlib.sha256(rest).digest() != data[len(MAGIC) : start]:
        raise ValueError("damaged entry")
    length = int.from_bytes(rest[:8], "little")
    return json.loads(rest[8 : 8 + length]), rest[8 + length :]


def read_entry(path: Path) -> Entry | None:
    """What an entry's file says of itself, or None if it cannot be read."""
    try:
        status = path.stat()
        with path.open("rb") as stream:
            head = stream.read(len(MAGIC) + 32 + 8)
            if not head.startswith(MAGIC):
                return None
            length = int.from_bytes(head[-8:], "little")
            header = json.loads(stream.read(min(length, status.st_size)))
        return Entry(
            path,
            header["kernel"],
            header["parts"],
            header["reason"],
            header["built"],
            status.st_mtime,
            status.st_size,
        )
    except (OSError, ValueError, KeyError):
        return None
