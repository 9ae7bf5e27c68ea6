"""What a kernel needs of scarce memory, known before a device's compiler sees it."""

from __future__ import annotations

import math
import re

from ferro.codegen.program import Program
from ferro.dsl.ir import Kernel, Value, walk

_LOCAL = re.compile(r"^\s*__local (\w+) \w+\[(\d+)\];", re.M)
_BYTES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2}


def local_memory(program: Program) -> int:
    """Bytes of local memory that a work-group of ``program`` declares."""
    return sum(_BYTES.get(ctype, 4) * int(count) for ctype, count in _LOCAL.findall(program.source))


def registers(kernel: Kernel, lanes: int) -> int:
    """An estimate of the registers, of ``lanes`` elements each, that the widest loop keeps alive:
    what it carries from turn to turn."""
    loops = [op for op in walk(kernel.body) if op.name in ("for", "walk")]
    return max((_carried(op.results, lanes) for op in loops), default=0)


def _carried(values: tuple[Value, ...], lanes: int) -> int:
    return sum(math.ceil(value.type.size / lanes) for value in values if value.shape)
