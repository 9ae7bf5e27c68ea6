"""The ``@kernel`` decorator and the definition it makes out of a Python function."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from ferro.dsl import ast, diagnostics, ir, kept, language
from ferro.dsl.parameters import Parameter, read_parameters
from ferro.dsl.types import DTYPES


@dataclass(eq=False)
class KernelDefinition:
    """A kernel as its author wrote it.

    ``source`` is the text of the function with its decorators, from line ``line`` of ``file``.
    ``names`` is what the function's global names mean. Nothing is parsed before it is needed.
    """

    name: str
    file: str
    line: int
    source: str
    names: Mapping[str, Any]
    function: Callable[..., Any] | None = None
    _kernels: dict[Any, ir.Kernel] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_source(
        text: str, file: str = "<kernel>", names: Mapping[str, Any] | None = None
    ) -> KernelDefinition:
        """A definition from the text of one function. Raises CompileError if it cannot be parsed.

        ``names`` gives other kernels that the text may call; ``tl`` and the dtypes are known.
        """
        from ferro.dsl.parser import parse

        diagnostics.remember(file, text)
        tree = parse(text, file)
        known = {"tl": language, **DTYPES, **(names or {})}
        return KernelDefinition(tree.name, file, 1, text, known)

    @cached_property
    def tree(self) -> ast.Function:
        """The syntax tree. Raises CompileError for anything outside of the language."""
        return kept.recalled(ast.Function, self, None, self._parsed)

    def _parsed(self) -> ast.Function:
        from ferro.dsl.parser import parse  # Lark is not needed where the tree is kept

        return parse(self.source, self.file, self.line)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The declared parameters in order. Raises CompileError for a bad declaration."""
        return read_parameters(self.tree, self.lookup)

    @property
    def meaning(self) -> dict[str, Parameter]:
        """The constexprs that select what the kernel computes."""
        return {n: p for n, p in self.parameters.items() if p.kind == "const"}

    @property
    def schedule(self) -> dict[str, Parameter]:
        """The constexprs that the tuner may set: they change speed and nothing else."""
        return {n: p for n, p in self.parameters.items() if p.kind == "schedule"}

    @cached_property
    def _measured(self) -> list[tuple[str, str, int]]:
        """(constexpr of meaning, buffer, axis) where an extent is just that constexpr."""
        return [
            (node.id, parameter.name, axis)
            for parameter in self.parameters.values()
            for axis, node in enumerate(parameter.extents)
            if isinstance(node, ast.Name) and node.id in self.meaning
        ]

    def deduced(self, arguments: Mapping[str, Any]) -> dict[str, int]:
        """Constexprs that are a whole extent of one of the arrays, read off its shape.

        Arguments that are no arrays or have too few axes are left to the launch's own checks.
        """
        found: dict[str, int] = {}
        for name, buffer, axis in self._measured:
            shape = getattr(arguments.get(buffer), "shape", ())
            if axis < len(shape):
                found.setdefault(name, int(shape[axis]))
        return found

    @property
    def docstring(self) -> str:
        return inspect.cleandoc(self.tree.docstring)

    @property
    def is_function(self) -> bool:
        """True for a function that is inlined where it is called: some parameter is undeclared."""
        return any(p.annotation is None for p in self.tree.parameters)

    def specialise(
        self, *, absent: Sequence[str] = (), **constants: int | float | bool | str
    ) -> ir.Kernel:
        """The kernel with its constexprs bound and the buffers ``absent`` left out.

        Constexprs with a default may be omitted. Raises CompileError with everything that is wrong
        with the kernel or with the constants.
        """
        left_out = frozenset(absent)
        given = tuple((k, type(v).__name__, repr(v)) for k, v in sorted(constants.items()))
        key = (left_out, given)
        if key not in self._kernels:
            self._kernels[key] = kept.recalled(
                ir.Kernel,
                self,
                (sorted(left_out), given),
                lambda: self._specialised(constants, left_out),
            )
        return self._kernels[key]

    def _specialised(self, constants: Mapping[str, Any], absent: frozenset[str]) -> ir.Kernel:
        from ferro.dsl.specialise import specialise

        return specialise(self, constants, absent)

    def lookup(self, name: str) -> Any:
        """What a global name means in the kernel's file. Raises KeyError if nothing."""
        if name in self.names:
            return self.names[name]
        return DTYPES[name] if name in DTYPES else language.PYTHON[name]

    def __call__(self, *args: Any, **keywords: Any) -> NoReturn:
        raise TypeError(
            f"kernel `{self.name}` is compiled, not called: other kernels may call it, Python code "
            f"launches it on a device, as in `device.run({self.name}, x=x, y=y)`"
        )

    def __getitem__(self, grid: Any) -> NoReturn:
        raise TypeError(
            f"kernel `{self.name}` takes no grid: it follows from `tl.program_id(axis, count)`; "
            f"launch it with `device.run({self.name}, x=x, y=y)`"
        )

    def __repr__(self) -> str:
        return f"<kernel {self.name} at {self.file}:{self.line}>"


class _Names(Mapping[str, Any]):
    """Globals and closure of a function, read when they are needed: kernels may come later."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function

    def _cells(self) -> dict[str, Any]:
        names = self._function.__code__.co_freevars
        cells = self._function.__closure__ or ()
        return {n: c.cell_contents for n, c in zip(names, cells, strict=True) if _filled(c)}

    def __getitem__(self, name: str) -> Any:
        cells = self._cells()
        return cells[name] if name in cells else self._function.__globals__[name]

    def __iter__(self) -> Any:
        yield from {**self._function.__globals__, **self._cells()}

    def __len__(self) -> int:
        return len(list(iter(self)))


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def kernel(function: Callable[..., Any]) -> KernelDefinition:
    """Turn a Python function into a kernel. The function itself never runs.

    Raises TypeError if the source of the function cannot be found, as in an interactive session.
    """
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"@kernel goes on a function, not on {type(function).__name__}")
    try:
        lines, line = inspect.getsourcelines(function)
    except (OSError, TypeError, IndentationError) as error:
        raise TypeError(
            f"the source of kernel `{function.__name__}` cannot be read ({error}): kernels are "
            "compiled from their text, so put it into a file or use KernelDefinition.from_source"
        ) from None
    file = inspect.getsourcefile(function) or function.__code__.co_filename
    names = _Names(function)
    return KernelDefinition(function.__name__, file, line, "".join(lines), names, function)
