"""From a definition and its constexprs to the IR: ``specialise`` and ``specialise_function``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from ferro.dsl import ast, collisions, extents, poison, schedule
from ferro.dsl.cleanup import remove_unused
from ferro.dsl.context import Frame
from ferro.dsl.definitions import definitions
from ferro.dsl.diagnostics import CompileError, did_you_mean, fail
from ferro.dsl.domains import Domains
from ferro.dsl.ir import Block, Buffer, Extent, Function, Kernel, Pointer, Quantised, Scalar, Value
from ferro.dsl.ir import walk as operations
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.objects import Object, Undefined
from ferro.dsl.parameters import BUFFERS, POINTERS, QUANTISED, Parameter, resolve
from ferro.dsl.static import Constant, Static, fold
from ferro.dsl.types import DType, Span, TileType, f32, i32
from ferro.dsl.walks import Walks

_ABSENT_DIMENSION = Undefined(
    "is a dimension of an absent buffer", "use it under `if buffer is not None:` only"
)
_ARTICLES = {int: "an int", float: "a float", bool: "a bool", str: "a string"}
_EXTENT_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod"}
_EXTENT_CALLS = {"cdiv": "cdiv", "scalar_min": "min", "scalar_max": "max"}
_IN_FUNCTION = {
    "const", "neg", "abs", "not", "rint", "floor", "add", "sub", "mul", "min", "max", "div", "mod",
    "and", "or", "xor", "shl", "shr", "lt", "le", "gt", "ge", "eq", "ne", "fma", "where", "cast",
    "bitcast", "call",
}  # fmt: skip


def specialise(
    definition: KernelDefinition, constants: Mapping[str, Constant], absent: frozenset[str]
) -> Kernel:
    """The IR of a kernel for given constexprs, without the optional buffers in ``absent``.

    Raises CompileError with everything that is wrong.
    """
    try:
        return Specialiser(definition).kernel(constants, absent)
    except RecursionError:
        fail(
            "FER232",
            definition.tree.span,
            f"`{definition.name}` computes a value in too many steps, each from the one before",
            "let a loop over `range` take the steps, not one over `tl.static_range`",
        )


def specialise_function(
    definition: KernelDefinition, dtypes: Sequence[DType] | None = None
) -> Function:
    """An elementwise function over scalars of ``dtypes`` (default: all f32).

    Raises CompileError if it does more than compute elements.
    """
    return Specialiser(definition).function(dtypes)


class Specialiser(Walks):
    """Reads one definition, once."""

    def __init__(self, definition: KernelDefinition) -> None:
        super().__init__()
        self._definition = definition
        self._names: dict[str, None] = {}

    def kernel(self, constants: Mapping[str, Constant], absent: frozenset[str]) -> Kernel:
        """Declare the parameters, read the body, put the kernel together."""
        definition = self._definition
        self._check_entry(absent)
        statics = self._constants(constants)
        self.frames.append(Frame(definition, dict(statics)))
        buffers = self._buffers(statics, absent)
        scalars = self._scalars(absent)
        self.frames.pop()
        self.errors.finish()
        variables = self._variables(statics, buffers, scalars)
        self.run_function(Frame(definition, variables, launched=True))
        # What is wrong so far was left out; the rest is proved too: all errors come at once.
        remove_unused(self.builder.block)
        count = max(self.grid, default=0) + 1
        kernel = Kernel(
            definition.name,
            tuple(buffers),
            tuple(scalars),
            {n: s.value for n, s in statics.items()},
            frozenset(definition.schedule),
            tuple(self.grid.get(axis, extents.const(1)) for axis in range(count)),
            self.builder.block,
            functions(self.builder.block),
            definition.file,
            definition.source,
            definition.tree.span,
        )
        domains = Domains(kernel, definitions(kernel))
        self.errors.add(schedule.check(kernel, domains))
        self.errors.add(poison.check(kernel, domains))
        if not self.errors:  # a store that is wrong already collides as a consequence, often
            self.errors.add(collisions.check(kernel, domains))
        self.errors.finish()
        return kernel

    def function(self, dtypes: Sequence[DType] | None) -> Function:
        """Read the body with scalars for parameters."""
        names = list(self._definition.parameters)
        kinds = dtypes or [f32] * len(names)
        params = [Value(TileType(t), n) for t, n in zip(kinds, names, strict=True)]
        self.builder.block.params = params
        frame = Frame(self._definition, dict(zip(names, params, strict=True)))
        result = self.run_function(frame)
        self.errors.finish()
        body = self.builder.block
        self.builder.span = self._definition.tree.span
        body.results = [self.value(r) for r in (result if isinstance(result, tuple) else (result,))]
        remove_unused(body)
        for op in operations(body):
            if op.name not in _IN_FUNCTION:
                self.fail(
                    "FER152",
                    f"an elementwise function cannot use `{op.name}`",
                    span=op.span,
                    help="it computes one element from its arguments",
                )
        return Function(self._definition.name, body)

    # parameters

    def _check_entry(self, absent: frozenset[str]) -> None:
        declared = self._definition.parameters
        for parameter in declared.values():
            if parameter.kind == "free":
                self._note(
                    "FER104",
                    parameter.span,
                    f"`{parameter.name}` has no annotation",
                    "every parameter of a launched kernel is declared",
                )
        for name in sorted(absent):
            if name not in declared or not declared[name].optional:
                span = declared[name].span if name in declared else self._definition.tree.span
                self._note(
                    "FER160",
                    span,
                    f"`{name}` is no optional buffer",
                    "declare it with `= None` to leave it out",
                )
        self.errors.finish()

    def _constants(self, given: Mapping[str, Constant]) -> dict[str, Static]:
        declared = {**self._definition.meaning, **self._definition.schedule}
        for name in given:
            if name not in declared:
                help = did_you_mean(name, declared, f"it has {', '.join(declared) or 'none'}")
                span = self._definition.tree.span
                self._note("FER161", span, f"`{name}` is no constexpr of the kernel", help)
        statics = {}
        for name, parameter in self._definition.parameters.items():
            if name in declared:
                value = given.get(name, parameter.default)
                statics[name] = Static(self._constant(parameter, value), parameter.kind != "const")
        self.errors.finish()
        return statics

    def _constant(self, parameter: Parameter, value: Constant | None) -> Constant:
        name = parameter.name
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            help = f"give it by name (`{name}=...`, on the command line `--set {name}=...`)"
            self._note("FER162", parameter.span, f"constexpr `{name}` has no value", help)
            return 0
        examples = [*parameter.choices, parameter.default]
        wanted = next((type(e) for e in examples if e is not None), type(value))
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted or wanted not in (int, float, bool, str):
            message = f"`{name}` is {value!r}, a {type(value).__name__}"
            self._note(
                "FER163", parameter.span, message, f"give {_ARTICLES.get(wanted, wanted.__name__)}"
            )
        elif parameter.choices and value not in parameter.choices:
            help = f"choose one of {', '.join(map(repr, parameter.choices))}"
            self._note("FER110", parameter.span, f"{value!r} is no choice for `{name}`", help)
        return value

    def _buffers(self, statics: Mapping[str, Static], absent: frozenset[str]) -> list[Buffer]:
        buffers: list[Buffer] = []
        for p in self._definition.parameters.values():
            if p.kind not in BUFFERS or p.name in absent:
                continue
            try:
                shape = tuple(self._extent(e, statics) for e in p.extents)
            except CompileError as error:
                self.report(error)
                continue
            if p.kind in POINTERS:
                assert p.dtype is not None
                buffers.append(Pointer(p.name, p.dtype, shape, POINTERS[p.kind], p.span))
            else:
                format, access = QUANTISED[p.kind]
                buffers.append(Quantised(p.name, format, shape[0], shape[1], access, p.span))
        return buffers

    def _scalars(self, absent: frozenset[str]) -> list[Scalar]:
        scalars = []
        for p in self._definition.parameters.values():
            if p.kind == "scalar":
                assert p.dtype is not None
                self.builder.span = p.span
                value = self.builder.scalar(p.name, p.dtype)
                scalars.append(Scalar(p.name, value, p.lo, p.hi, False, p.span))
        for name in self._names:
            value = self.builder.scalar(name, i32)
            scalars.append(Scalar(name, value, 0, None, True, value_span(self._definition, name)))
        return scalars

    def _variables(
        self, statics: Mapping[str, Static], buffers: Sequence[Buffer], scalars: Sequence[Scalar]
    ) -> dict[str, Object]:
        variables: dict[str, Object] = {}
        for p in self._definition.parameters.values():
            for node in _sizes(p):
                variables[node.id] = _ABSENT_DIMENSION
        variables.update(dict.fromkeys(self._definition.parameters))
        variables.update(statics)
        variables.update({b.name: b for b in buffers})
        variables.update({s.name: s.value for s in scalars})
        return variables

    # extents

    def _extent(self, node: ast.Expr, statics: Mapping[str, Static]) -> Extent:
        """An integer expression over names; a name that is no parameter becomes a dimension."""
        match node:
            case ast.Literal(value=int(value)) if not isinstance(value, bool):
                return extents.const(value)
            case ast.Name(id=name):
                return self._extent_name(node, name, statics)
            case ast.Binary(op=op, left=left, right=right) if op in _EXTENT_OPERATORS:
                return _combined(op, self._extent(left, statics), self._extent(right, statics))
            case ast.Call(function=function, args=(left, right), keywords=()):
                called = getattr(resolve(function, self._definition.lookup), "name", "")
                if called in _EXTENT_CALLS:
                    op = _EXTENT_CALLS[called]
                    return _combined(op, self._extent(left, statics), self._extent(right, statics))
        self.fail(
            "FER108",
            "an extent is an integer expression over names",
            span=node.span,
            help="use + - * // %, tl.cdiv, min, max",
        )

    def _extent_name(self, node: ast.Name, name: str, statics: Mapping[str, Static]) -> Extent:
        if name in statics:
            static = statics[name]
            if not static.is_int:
                self.fail(
                    "FER108",
                    f"`{name}` is {static!r}, no int",
                    span=node.span,
                    help="extents are made of integers",
                )
            return extents.const(int(static.value), static.schedule)
        parameter = self._definition.parameters.get(name)
        if parameter is None:
            self._names[name] = None
        elif parameter.kind != "scalar" or parameter.dtype is f32:
            self.fail(
                "FER108",
                f"`{name}` is a {parameter.kind}, no size",
                span=node.span,
                help="extents are made of dimensions, integer scalars and constexprs",
            )
        return extents.name(name)

    def _note(self, code: str, span: Span, message: str, help: str) -> None:
        try:
            self.fail(code, message, help=help, span=span)
        except CompileError as error:
            self.errors.add(error.diagnostics)


def _combined(op: str, left: Extent, right: Extent) -> Extent:
    if left[0] == "const" and right[0] == "const":
        sides = [Static(e[1], len(e) > 2) for e in (left, right)]
        folded = fold(_EXTENT_OPERATORS.get(op, op), *sides)
        if folded is not None:
            return extents.const(int(folded.value), folded.schedule)
    return (op, left, right)


def _sizes(parameter: Parameter) -> Iterator[ast.Name]:
    """The names that a buffer's extents are made of."""
    waiting: list[ast.Node] = list(reversed(parameter.extents))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.Call):
            waiting += reversed(node.args)
        else:
            waiting += reversed(list(ast.children(node)))


def value_span(definition: KernelDefinition, name: str) -> Span:
    """Where a dimension is first mentioned."""
    for parameter in definition.parameters.values():
        for node in _sizes(parameter):
            if node.id == name:
                return node.span
    return definition.tree.span


def functions(block: Block) -> dict[str, Function]:
    """Every library function that is reached from the ``call`` operations of a block."""
    found: dict[str, Function] = {}
    waiting = [block]
    while waiting:
        for op in operations(waiting.pop()):
            name = op.attrs.get("function")
            if name is not None and name not in found:
                found[name] = library_function(name)
                waiting.append(found[name].body)
    return found


@cache
def library_function(name: str) -> Function:
    """A function of the language's library, read once a process."""
    from ferro.dsl.library import FUNCTIONS

    return specialise_function(FUNCTIONS[name])
