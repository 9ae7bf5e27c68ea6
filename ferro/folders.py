"""Where Ferro keeps models, and what can be made again: programs, probe results, vendor entries."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_folder(*parts: str) -> Path:
    """The user's cache folder for Ferro (``FERRO_CACHE_DIR`` or the XDG one); may not exist yet."""
    chosen = os.environ.get("FERRO_CACHE_DIR")
    return Path(chosen or os.path.join(_base("XDG_CACHE_HOME", ".cache"), "ferro"), *parts)


def models_folder() -> Path:
    """The user's folder of models (``FERRO_MODELS_DIR`` or one in the XDG data folder); may not
    exist yet."""
    chosen = os.environ.get("FERRO_MODELS_DIR")
    base = _base("XDG_DATA_HOME", os.path.join(".local", "share"))
    return Path(chosen or os.path.join(base, "ferro", "models"))


def _base(variable: str, usual: str) -> str:
    return os.environ.get(variable) or os.path.join(os.path.expanduser("~"), usual)


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the new one, never a part.

    Raises OSError where the folder cannot be written.
    """
    with written_atomically(path) as stream:
        stream.write(data)


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A stream whose contents become the file ``path`` at the end of the ``with`` block, and
    nothing if that is left by an exception. A link stays and its target is replaced; a device or a
    pipe is written into. Raises OSError, naming ``path``, where it cannot be written."""
    with naming(path):
        if path.exists() and not path.is_file():
            with open(path, "wb") as stream:
                yield stream
        else:
            with _replaced(Path(os.path.realpath(path))) as stream:
                yield stream


@contextmanager
def naming(file: Path | str) -> Iterator[None]:
    """An OSError of the ``with`` block names ``file`` where it names none: reading and writing
    what is open do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:40]}-{secrets.token_hex(6)}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
