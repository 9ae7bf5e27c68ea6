"""What a kernel is, as bytes: the part of the program cache's key that comes from the kernel.

Two kernels with the same bytes generate the same code. Value ids and names, spans, the file's name
and comments do not enter; parameter names and constants do, since launches refer to them.
"""

from __future__ import annotations

import hashlib

from ferro.dsl import ir, printer


def canonical(kernel: ir.Kernel) -> bytes:
    return printer.text(kernel, names=False, spans=False).encode()


def digest(kernel: ir.Kernel) -> str:
    """sha256 of the canonical bytes, in hex."""
    return hashlib.sha256(canonical(kernel)).hexdigest()
