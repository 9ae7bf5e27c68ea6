"""Launches whose accesses were proved to be in range once, remembered between processes.

A proof takes up to 0.1 s, and starting a language model asks for some dozens of them. What is kept
is one line a launch in the user's cache folder: a hash of the kernel, of the numbers of the launch
and of the rules themselves, so that a change of any of them asks for a new proof.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from ferro.dsl import bounds, canonical, ir, kept
from ferro.dsl.launch import Binding
from ferro.folders import cache_folder

MOST = 1 << 20  # bytes: longer files begin anew
_LINE = re.compile(r"[0-9a-f]{64}")

_kernel_digest = lru_cache(maxsize=512)(canonical.digest)


class Proofs:
    """The proofs of a file (default: the user's). One that cannot be written is done without."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder("proofs.txt")
        self._known: set[str] | None = None

    def check(self, kernel: ir.Kernel, binding: Binding) -> None:
        """Like ``bounds.check``. Raises LaunchError."""
        known = self._read()
        key = _key(kernel, binding)
        if key in known:
            return
        bounds.check(kernel, binding.scalars, binding.grid, binding.extents)
        known.add(key)
        self._append(key)

    def _read(self) -> set[str]:
        if self._known is None:
            try:
                text = self._path.read_text("ascii", "replace")
            except OSError:
                text = ""
            self._known = {line for line in text.splitlines() if _LINE.fullmatch(line)}
        return self._known

    def _append(self, key: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            large = self._path.exists() and self._path.stat().st_size > MOST
            # a line is one write, which several processes may do at once
            with open(self._path, "w" if large else "a", encoding="ascii") as stream:
                stream.write(f"{key}\n")
        except OSError:
            return


def _key(kernel: ir.Kernel, binding: Binding) -> str:
    numbers = sorted((n, v) for n, v in binding.scalars.items() if isinstance(v, int))
    shape = (numbers, tuple(binding.grid), sorted(binding.extents.items()))
    text = "\0".join([kept.rules(), _kernel_digest(kernel), repr(shape)])
    return hashlib.sha256(text.encode()).hexdigest()
