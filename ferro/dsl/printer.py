"""Readable text of a kernel: one operation a line, deterministic.

Values keep their DSL name (``%k``, then ``%k.1`` for the next one of that name) or are numbered in
order. The text is for people and golden files; ``canonical.py`` uses it without names and spans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ferro.dsl import extents, ir


def text(kernel: ir.Kernel, *, names: bool = True, spans: bool = False) -> str:
    """The whole kernel. ``names=False`` numbers every value; ``spans`` adds line and column."""
    return "\n".join(_Printer(names, spans).kernel(kernel)) + "\n"


def op_text(op: ir.Op) -> str:
    """One operation without its blocks, for messages and debugging."""
    return _Printer(names=True, spans=False).op(op, "")[0]


_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "shl": "<<", "shr": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip
_CALLS = {"min": "minimum", "max": "maximum", "abs": "abs", "where": "where"}
_UNSEEN = {"broadcast", "expand", "transpose", "reshape"}
_LONGEST = 48


def expression(value: ir.Value, made: Mapping[ir.Value, ir.Op]) -> str:
    """``value`` as its author may have written it, "" if that would be long or obscure.

    ``made`` tells which operation made a value.
    """
    text = _expression(value, made, 4)
    return text if text is not None and len(text) <= _LONGEST else ""


def _expression(value: ir.Value, made: Mapping[ir.Value, ir.Op], depth: int) -> str | None:
    op = made.get(value)
    if value.name:
        return value.name
    if op is None or depth == 0:
        return None
    if op.name == "const":
        return str(op.attrs["value"])
    if op.name in _UNSEEN:
        return _expression(op.args[0], made, depth)
    if op.name not in _SIGNS and op.name not in _CALLS:
        return None
    parts = [_expression(a, made, depth - 1) for a in op.args]
    words = [p for p in parts if p is not None]
    if len(words) < len(parts):
        return None
    if op.name in _CALLS:
        return f"tl.{_CALLS[op.name]}({', '.join(words)})"
    return f" {_SIGNS[op.name]} ".join(f"({w})" if " " in w else w for w in words)


def attribute(value: Any) -> str:
    """An attribute as text that differs for different values (1, 1.0, True, -0.0 and "1")."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(attribute, value)) + ")"
    if isinstance(value, (frozenset, set)):
        return "{" + ", ".join(sorted(map(attribute, value))) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {attribute(value[k])}" for k in sorted(value)) + "}"
    return repr(value)


def buffer_text(buffer: ir.Buffer) -> str:
    shape = ", ".join(extents.text(e) for e in buffer.extents)
    element = buffer.dtype.name if isinstance(buffer, ir.Pointer) else buffer.format
    return f"{buffer.name}: {buffer.access} {element}[{shape}]"


def scalar_text(scalar: ir.Scalar) -> str:
    words = f"{scalar.name}: {scalar.value.type!r}"
    if scalar.implicit:
        return words + " dimension"
    if scalar.lo is None and scalar.hi is None:
        return words
    lo, hi = ("" if bound is None else str(bound) for bound in (scalar.lo, scalar.hi))
    return f"{words}[{lo}, {hi}]"


class _Printer:
    def __init__(self, names: bool, spans: bool) -> None:
        self.names = names
        self.spans = spans
        self.labels: dict[ir.Value, str] = {}
        self.used: Counter[str] = Counter()

    def label(self, value: ir.Value) -> str:
        if value not in self.labels:
            self.labels[value] = self._fresh(value.name if self.names else "")
        return self.labels[value]

    def _fresh(self, name: str) -> str:
        if not name:
            self.used[""] += 1
            return f"%{self.used[''] - 1}"
        self.used[name] += 1
        count = self.used[name]
        return f"%{name}" if count == 1 else f"%{name}.{count - 1}"

    def typed(self, values: Iterable[ir.Value]) -> str:
        return ", ".join(f"{self.label(v)}: {v.type!r}" for v in values)

    def uses(self, values: Iterable[ir.Value]) -> str:
        return ", ".join(self.label(v) for v in values)

    def kernel(self, kernel: ir.Kernel) -> list[str]:
        parameters = [buffer_text(b) for b in kernel.buffers] + [
            scalar_text(s) for s in kernel.scalars
        ]
        lines = [f"kernel {kernel.name}(", *(f"    {p}," for p in parameters), ")"]
        for key in sorted(kernel.constants):
            kind = "schedule" if key in kernel.schedule else "const"
            lines.append(f"{kind} {key} = {attribute(kernel.constants[key])}")
        grid = ", ".join(extents.text(e) for e in kernel.grid)
        lines.append(f"grid [{grid}]")
        defined = {v for op in ir.walk(kernel.body) for v in op.results}
        for scalar in kernel.scalars:
            if scalar.value not in defined:
                lines.append(f"let {self.label(scalar.value)} = {scalar.name}")
        lines += ["{", *self.block(kernel.body, "  "), "}"]
        for name in sorted(kernel.functions):
            lines += self.function(kernel.functions[name])
        return lines

    def function(self, function: ir.Function) -> list[str]:
        head = f"function {function.name}({self.typed(function.body.params)}) {{"
        return [head, *self.block(function.body, "  "), "}"]

    def block(self, block: ir.Block, indent: str) -> list[str]:
        lines = [line for op in block.ops for line in self.op(op, indent)]
        if block.results:
            lines.append(f"{indent}yield {self.uses(block.results)}")
        return lines

    def op(self, op: ir.Op, indent: str) -> list[str]:
        # Operands are labelled first, so that numbers ascend in reading order.
        words = [op.name, self.uses(op.args)] if op.args else [op.name]
        words += [f"{key}={attribute(op.attrs[key])}" for key in sorted(op.attrs)]
        line = " ".join(words)
        if op.results:
            line = f"{self.typed(op.results)} = {line}"
        if self.spans and op.span.line:
            line += f"  # {op.span.line}:{op.span.column}"
        lines = [indent + line]
        for inner in op.blocks:
            lines.append(f"{indent}  ({self.typed(inner.params)}) {{")
            lines += self.block(inner, indent + "    ")
            lines.append(f"{indent}  }}")
        return lines
