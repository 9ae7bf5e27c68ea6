"""Syntax trees and checked kernels, kept on disk between processes.

Starting a language model reads some forty kernels, which takes half a second; reading what came of
it last time takes a twentieth of that. An entry is one file named by a hash of everything that it
comes from: the text of the kernel and of all kernels that it may call, where they stand, the
constexprs, and the language's own sources (``rules``), by which entries are grouped: those of
another version go when this one writes its first. What is damaged, or holds anything but nodes of
the language, counts as missing.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ferro.folders import cache_folder, write_atomically

Thing = TypeVar("Thing")

MOST = 64 << 20  # bytes of all entries: more begin anew
LARGEST = 4 << 20  # bytes of an entry
DIGEST = 32
MODULES = ("ferro.dsl.ast", "ferro.dsl.ir", "ferro.dsl.types")
_WORD = re.compile(r"[^\W\d]\w*")


@cache
def rules() -> str:
    """A hash of the sources of the language, in hex."""
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(Path(__file__).parent.iterdir()):
        if file.suffix in (".py", ".lark"):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def recalled(kind: type[Thing], definition: Any, detail: Any, make: Callable[[], Thing]) -> Thing:
    """What ``make`` gives, a ``kind`` made of ``definition`` and ``detail`` alone; of another
    process where that is kept. Raises whatever ``make`` raises."""
    if definition.function is None:  # a text without a file has no later process
        return make()
    text = "\0".join([kind.__name__, repr(detail), *sources(definition)])
    path = _folder() / hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    found = _read(path)
    if isinstance(found, kind):
        return found
    made = make()
    _write(path, made)
    return made


def sources(definition: Any) -> Iterator[str]:
    """Everything that the meaning of a definition comes from, but for the rules: its own text and
    place, what the names in it mean, and the same of each kernel among them."""
    seen = {id(definition)}
    waiting = [definition]
    while waiting:
        one = waiting.pop()
        yield f"{one.name} {one.file}:{one.line}\n{one.source}"
        for name in sorted(set(_WORD.findall(one.source))):
            try:
                thing = one.lookup(name)
            except KeyError:
                continue
            yield f"{name} {type(thing).__name__} {getattr(thing, 'name', '')}"
            if isinstance(thing, type(definition)) and id(thing) not in seen:
                seen.add(id(thing))
                waiting.append(thing)


def _folder() -> Path:
    return cache_folder("kernels", rules()[:16])


class _Unpickler(pickle.Unpickler):
    """Makes nodes of the language and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module in MODULES or (module, name) == ("builtins", "frozenset"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a kernel")


def _read(path: Path) -> Any:
    """The entry, or None."""
    try:
        if path.stat().st_size > LARGEST:
            return None
        data = path.read_bytes()
        if hashlib.sha256(data[DIGEST:]).digest() != data[:DIGEST]:
            return None
        return _Unpickler(io.BytesIO(data[DIGEST:])).load()
    except Exception:  # whatever a strange file makes of it: it is made again
        return None


def _write(path: Path, made: Any) -> None:
    """Keep ``made``; what cannot be kept is made again next time."""
    with suppress(OSError, pickle.PicklingError, RecursionError):
        data = pickle.dumps(made, protocol=5)
        if len(data) + DIGEST <= LARGEST:
            _make_room(path.parent)
            write_atomically(path, hashlib.sha256(data).digest() + data)


@cache
def _make_room(folder: Path) -> None:
    """Once a process: remove the entries of other versions, and all if they are too many."""
    for other in folder.parent.glob("*"):
        if other != folder or sum(entry.stat().st_size for entry in folder.iterdir()) > MOST:
            shutil.rmtree(other, ignore_errors=True)
