"""Takes a friendly call apart: constexprs, absent optional buffers, runtime arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferro.codegen.program import Config
from ferro.dsl import ir


def specialised(
    kernel: Any, arguments: Mapping[str, Any], config: Config
) -> tuple[ir.Kernel, dict[str, Any]]:
    """The specialised kernel of a call and its runtime arguments.

    ``kernel`` is a ``@kernel`` definition, whose constexprs are taken out of ``arguments``, or an
    ``ir.Kernel``. An optional buffer that is missing or None is absent. Raises CompileError.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(kernel, ir.Kernel):
        return kernel, given
    constants = {n: given.pop(n) for n in list(given) if n in kernel.meaning or n in kernel.schedule}
    constants |= config.constants
    absent = tuple(name for name in kernel.optional if name not in given)
    return kernel.specialise(absent=absent, **constants), given
