"""Where Ferro keeps what can be made again: programs, probe results, the vendor folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """The user's cache folder for Ferro (``FERRO_CACHE_DIR`` or the XDG one); may not exist yet."""
    chosen = os.environ.get("FERRO_CACHE_DIR")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        chosen = os.path.join(base, "ferro")
    return Path(chosen, *parts)


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the new one, never a part.

    Raises OSError where the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
