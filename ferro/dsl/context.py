"""The state of a specialisation: variables of the functions being read, errors, the builder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ferro.dsl import limits
from ferro.dsl.ast import Node
from ferro.dsl.builder import Builder
from ferro.dsl.diagnostics import Collector, CompileError, Diagnostic, did_you_mean, fail
from ferro.dsl.foreign import HINTS
from ferro.dsl.ir import Extent, Pointer, Quantised, Value
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.language import Annotation, Builtin
from ferro.dsl.objects import POISON, Element, Object, Poisoned, Undefined, kind
from ferro.dsl.static import Static
from ferro.dsl.types import DType, Span


@dataclass
class Frame:
    """One function being read: its variables and what it has returned.

    ``called_at`` is where it was inlined, ``launched`` is true for the outermost kernel.
    ``branches`` counts the run-time blocks around the
    current statement, in which nothing can return.
    """

    definition: KernelDefinition
    variables: dict[str, Object]
    called_at: Span | None = None
    launched: bool = False
    branches: int = 0
    returned: bool = False
    result: Object = None


@dataclass
class Context:
    """Variables, errors and conversions of compile-time objects to operands."""

    builder: Builder = field(default_factory=Builder)
    errors: Collector = field(default_factory=Collector)
    frames: list[Frame] = field(default_factory=list)
    grid: dict[int, Extent] = field(default_factory=dict)
    depth: int = 0
    read: int = 0

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def variables(self) -> dict[str, Object]:
        return self.frame.variables

    def fail(
        self, code: str, message: str, *notes: str, help: str = "", span: Span | None = None
    ) -> NoReturn:
        """Raise a CompileError at the node being read, or at ``span``."""
        fail(code, span or self.builder.span, message, help, notes)

    def deeper(self, node: Node) -> None:
        """Note that ``node`` is about to be read inside of what is being read."""
        self.depth += 1
        if self.depth > limits.DEPTH:
            self.fail(
                "FER232",
                f"blocks, calls and operators nest more than {limits.DEPTH} deep",
                span=node.span,
                help="assign parts to variables, and call fewer functions inside of each other",
            )

    def count(self, node: Node) -> None:
        """Note that a statement is about to be read. Raises when there were too many."""
        self.read += 1
        if self.read > limits.STATEMENTS:
            self.errors.close(
                Diagnostic(
                    "FER234",
                    node.span,
                    f"more than {limits.STATEMENTS} statements after unrolling and inlining",
                    "use `range` for `tl.static_range`, or split the kernel",
                )
            )

    def report(self, error: CompileError) -> None:
        """Note the findings of an error and go on; raises when there are too many."""
        calls = [f.called_at for f in reversed(self.frames) if f.called_at is not None]
        notes = tuple(f"inlined at {span}" for span in calls)
        self.errors.add(_with_notes(error.diagnostics, notes))

    def poison(self, names: Iterable[str]) -> None:
        """Give variables the value that silences errors that follow from it."""
        self.variables.update((name, POISON) for name in names)

    def bind(self, name: str, thing: Object) -> None:
        """Assign a variable; a value without a name takes it."""
        if isinstance(thing, Value) and not thing.name:
            thing.name = name
        self.variables[name] = thing

    def find(self, name: str) -> Object:
        """The meaning of a name. Raises CompileError if it has none here."""
        if name not in self.variables:
            return self._global(name)
        thing = self.variables[name]
        if thing is POISON:
            raise Poisoned
        if isinstance(thing, Undefined):
            self.fail("FER112", f"`{name}` {thing.reason}", help=thing.help)
        return thing

    def _global(self, name: str) -> Object:
        definition = self.frame.definition
        try:
            thing = definition.lookup(name)
        except KeyError:
            known = [*self.variables, *definition.names, "range", "min", "max", "abs"]
            help = HINTS.get(name) or did_you_mean(
                name, known, "assign it before, or declare it as a parameter"
            )
            self.fail("FER101", f"unknown name `{name}`", help=help)
        if isinstance(thing, (KernelDefinition, Builtin, Annotation, DType)) or _is_module(thing):
            return thing
        self.fail(
            "FER102",
            f"the global `{name}` cannot be used in a kernel",
            f"it is {kind(thing)}",
            help=HINTS.get(name)
            or f"only kernels are read from outside: declare `{name}: tl.const` as a parameter",
        )

    # objects to operands

    def operand(self, thing: Object) -> Value | Static:
        """A value or a number. Raises CompileError for anything else."""
        if isinstance(thing, Value):
            return thing
        if isinstance(thing, Static) and not isinstance(thing.value, str):
            return thing
        help = "a tile or a number is expected here"
        if isinstance(thing, Element):
            help = f"read memory with `tl.load({thing.buffer.name}[...])`"
        if isinstance(thing, (Pointer, Quantised)):
            help = f"read memory with `tl.load({thing.name}[index...])`"
        self.fail("FER113", f"{kind(thing)} is no value", help=help)

    def value(self, thing: Object, dtype: DType | None = None) -> Value:
        """An IR value; numbers become constants."""
        return self.builder.value(self.operand(thing), dtype)

    def maybe(self, thing: Object) -> Value | Static | None:
        """An operand, or None where an argument was left out."""
        return None if thing is None else self.operand(thing)

    def static_int(self, thing: Object, what: str) -> Static:
        """A compile-time int. Raises CompileError for a run-time value or another type."""
        if isinstance(thing, Static) and thing.is_int:
            return thing
        help = "use literals, constexpr parameters and arithmetic on them"
        self.fail(
            "FER114", f"{what} must be known at compile time", f"got {kind(thing)}", help=help
        )

    def integer(self, thing: Object, what: str) -> int:
        """A compile-time int as a Python int."""
        return int(self.static_int(thing, what).value)

    def shape(self, thing: Object) -> list[Static]:
        """A list of compile-time ints; one int stands for a list of one."""
        extents = thing if isinstance(thing, tuple) else (thing,)
        return [self.static_int(e, "an extent of a tile") for e in extents]

    def dtype(self, thing: Object) -> DType:
        if isinstance(thing, DType):
            return thing
        self.fail("FER115", f"a dtype is expected, got {kind(thing)}", help="such as `tl.f32`")

    def text(self, thing: Object, what: str) -> str:
        if isinstance(thing, Static) and isinstance(thing.value, str):
            return thing.value
        self.fail("FER116", f"{what} must be a string", f"got {kind(thing)}", help="write it out")

    def buffer(self, thing: Object, what: str) -> Pointer | Quantised:
        if isinstance(thing, (Pointer, Quantised)):
            return thing
        self.fail("FER117", f"{what} takes a buffer", f"got {kind(thing)}", help="name a parameter")


def _is_module(thing: Object) -> bool:
    return getattr(thing, "__name__", "") == "ferro.dsl.language"


def _with_notes(found: Iterable[Diagnostic], notes: tuple[str, ...]) -> list[Diagnostic]:
    return [replace(d, notes=d.notes + notes) if notes else d for d in found]
