"""Temporary folders that outlive no process: what a killed one leaves, the next one removes.

Every process that uses such a folder holds a shared lock on a file in it. Whoever gets the lock for
itself knows that nobody uses the folder any more and removes it. Where the system has no such locks
folders stay until the system clears its temporary one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from ferro import system

LOCK = ".used-by-ferro"

_held: dict[Path, int] = {}  # the descriptor of each folder's lock


def made(prefix: str) -> Path:
    """A new folder in the system's temporary one, for this process and children that ``join`` it.

    Folders of this prefix whose processes are gone are removed first.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_unused(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        if _hold(folder, os.O_CREAT):
            return folder


def join(folder: Path) -> bool:
    """Keep a folder that another process made until this one ends too; False if it is gone."""
    return folder in _held or _hold(folder)


def _hold(folder: Path, flags: int = 0) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | system.OWN | flags, 0o600)
    except OSError:
        return False
    system.lock(lock, shared=True, wait=True)
    if os.fstat(lock).st_nlink == 0:  # somebody was just removing it
        os.close(lock)
        return False
    _held[folder] = lock
    atexit.register(_leave, folder, os.getpid())
    return True


def _leave(folder: Path, owner: int) -> None:
    """At the end of the process, not of one that was forked from it."""
    if os.getpid() == owner:
        os.close(_held.pop(folder))
        _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    """Remove a folder whose lock nobody holds; one without a lock, or of another user, stays."""
    with contextlib.suppress(OSError):
        lock = os.open(folder / LOCK, os.O_RDWR | system.OWN)
        try:
            if system.LOCKS and system.lock(lock):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
