"""The one place that makes operations: ``Builder`` has a method for each and holds its type rule.

Operands of elementwise operations may be values or Python literals; literals take the dtype of the
other operand, shapes broadcast as in numpy. Every violated rule raises ``CompileError`` at
``builder.span``. Operations go to ``builder.block``; equal pure ones become one value.
"""

from __future__ import annotations

from ferro.dsl.builder_control import Control
from ferro.dsl.builder_core import Operand

__all__ = ["Builder", "Operand"]


class Builder(Control):
    """All operations of the language: shapes, elementwise, memory, reductions, control."""
