"""Parameters of a kernel: what their annotations say, without executing them.

Extents stay syntax here. ``specialise`` turns them into expressions when constexprs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ferro.dsl import ast
from ferro.dsl.diagnostics import Collector, CompileError, Diagnostic, did_you_mean, fail
from ferro.dsl.foreign import HINTS
from ferro.dsl.language import Annotation
from ferro.dsl.static import Constant
from ferro.dsl.types import DType, Span, f32, i32, u32

Lookup = Callable[[str], Any]

POINTERS = {"ptr": "in", "out": "out", "inout": "inout"}
QUANTISED = {"q8": ("q8", "in"), "q4": ("q4", "in"), "a8": ("a8", "in"), "a8_out": ("a8", "out")}
BUFFERS = (*POINTERS, *QUANTISED)

# What ``run`` of a device takes by name besides a kernel's arguments.
OPTIONS = ("config", "target", "order", "seed", "breakpoints")

_KINDS = (
    "declare it as tl.ptr, tl.out, tl.inout, tl.q8, tl.q4, tl.a8, tl.a8_out, a scalar dtype, "
    "tl.const or tl.schedule"
)


@dataclass(frozen=True)
class Parameter:
    """One declared parameter.

    ``kind`` is "ptr", "out", "inout", "q8", "q4", "a8", "a8_out", "scalar", "const", "schedule" or
    "free" (of an inlined function). ``default`` is None where there is none. ``optional`` marks a
    buffer that may be left out. ``lo`` and ``hi`` limit an integer scalar.
    """

    name: str
    kind: str
    span: Span
    dtype: DType | None = None
    extents: tuple[ast.Expr, ...] = ()
    choices: tuple[Constant, ...] = ()
    default: Constant | None = None
    optional: bool = False
    lo: int | None = None
    hi: int | None = None


def read_parameters(tree: ast.Function, lookup: Lookup) -> dict[str, Parameter]:
    """The parameters of a function by name, in order. Raises CompileError with every bad one."""
    found: dict[str, Parameter] = {}
    errors = Collector()
    for node in tree.parameters:
        try:
            if node.name in found:
                fail(
                    "FER103", node.span, f"parameter `{node.name}` is declared twice", "rename one"
                )
            found[node.name] = _read(node, lookup)
        except CompileError as error:
            errors.add(error.diagnostics)
    if all(p.kind != "free" for p in found.values()):
        errors.add(_taken(p) for p in found.values() if p.name in OPTIONS)
    errors.finish()
    return found


def _taken(parameter: Parameter) -> Diagnostic:
    return Diagnostic(
        "FER111",
        parameter.span,
        f"`{parameter.name}` is an option of `device.run`, which an argument cannot be told from",
        f"rename the parameter; the options are {', '.join(OPTIONS)}",
    )


def resolve(node: ast.Expr, lookup: Lookup) -> Any:
    """The Python object that a dotted name stands for. Raises CompileError if there is none."""
    if isinstance(node, ast.Name):
        try:
            return lookup(node.id)
        except KeyError:
            fail("FER101", node.span, f"unknown name `{node.id}`", f"import or declare `{node.id}`")
    if isinstance(node, ast.Attribute):
        base = resolve(node.base, lookup)
        if not hasattr(base, node.name):
            known = [n for n in dir(base) if not n.startswith("_")]
            fail(
                "FER101",
                node.span,
                f"unknown name `{written(node)}`",
                HINTS.get(node.name)
                or did_you_mean(node.name, known, "docs/language.md lists all names"),
            )
        return getattr(base, node.name)
    fail("FER104", node.span, "a name is expected here", _KINDS)


def written(node: ast.Expr) -> str:
    """A dotted name as text."""
    if isinstance(node, ast.Attribute):
        return f"{written(node.base)}.{node.name}"
    return node.id if isinstance(node, ast.Name) else "..."


def constant(node: ast.Expr, lookup: Lookup) -> Constant:
    """A literal (maybe negative) or a named float such as ``tl.inf``."""
    match node:
        case ast.Literal(value=value) if value is not None:
            return value
        case ast.Unary(op="-", operand=operand):
            value = constant(operand, lookup)
            if isinstance(value, (int, float)):
                return -value
        case ast.Attribute():
            value = resolve(node, lookup)
            if isinstance(value, (int, float, bool, str)):
                return value
    fail("FER105", node.span, "a literal is expected here", "write an int, float, bool or string")


def _read(node: ast.Parameter, lookup: Lookup) -> Parameter:
    if node.annotation is None:
        default = constant(node.default, lookup) if node.default is not None else None
        return Parameter(node.name, "free", node.span, default=default)
    head: ast.Expr = node.annotation
    items: tuple[ast.Expr, ...] = ()
    if isinstance(node.annotation, ast.Subscript):
        head, items = node.annotation.base, node.annotation.items
    meaning = resolve(head, lookup)
    if isinstance(meaning, DType):
        return _scalar(node, meaning, items, lookup)
    if not isinstance(meaning, Annotation):
        fail("FER104", node.span, f"`{written(head)}` is no kind of parameter", _KINDS)
    if meaning.kind in BUFFERS:
        return _buffer(node, meaning.kind, items, lookup)
    return _constexpr(node, meaning.kind, items, lookup)


def _scalar(
    node: ast.Parameter, dtype: DType, items: tuple[ast.Expr, ...], lookup: Lookup
) -> Parameter:
    if dtype not in (f32, i32, u32):
        help = "scalars are tl.f32, tl.i32 or tl.u32"
        fail("FER104", node.span, f"a scalar parameter cannot be {dtype}", help)
    if node.default is not None:
        help = "use `tl.const` for a value with a default"
        fail("FER106", node.span, f"the scalar `{node.name}` cannot have a default", help)
    if not items:
        return Parameter(node.name, "scalar", node.span, dtype)
    limits = [constant(i, lookup) for i in items]
    whole = [x for x in limits if isinstance(x, int) and not isinstance(x, bool)]
    if len(whole) != 2 or len(limits) != 2 or whole[0] > whole[1] or dtype is f32:
        help = "write `tl.i32[lowest, highest]`, two integers in order"
        fail("FER107", node.span, f"the range of `{node.name}` is no range of integers", help)
    return Parameter(node.name, "scalar", node.span, dtype, lo=whole[0], hi=whole[1])


def _buffer(
    node: ast.Parameter, kind: str, items: tuple[ast.Expr, ...], lookup: Lookup
) -> Parameter:
    optional = isinstance(node.default, ast.Literal) and node.default.value is None
    if node.default is not None and not optional:
        help = "`= None` makes a buffer optional"
        fail("FER106", node.span, f"the buffer `{node.name}` cannot have this default", help)
    if kind in QUANTISED:
        if len(items) != 2:
            help = f"write `tl.{kind}[rows, columns]`"
            fail("FER108", node.span, f"`tl.{kind}` needs two extents, got {len(items)}", help)
        return Parameter(node.name, kind, node.span, extents=items, optional=optional)
    dtype = _element_type(items[0], lookup) if items else None
    if not isinstance(dtype, DType) or dtype.kind == "bool":
        help = f"write `tl.{kind}[dtype, extent, ...]`, for example `tl.{kind}[f32, M, K]`"
        fail("FER108", node.span, f"`tl.{kind}` needs an element type first", help)
    if len(items) < 2:
        help = f"write `tl.{kind}[{dtype}, N]`; the extents give bounds and strides"
        fail("FER108", node.span, f"`tl.{kind}` needs at least one extent", help)
    return Parameter(node.name, kind, node.span, dtype, items[1:], optional=optional)


def _constexpr(
    node: ast.Parameter, kind: str, items: tuple[ast.Expr, ...], lookup: Lookup
) -> Parameter:
    choices = tuple(constant(i, lookup) for i in items)
    default = constant(node.default, lookup) if node.default is not None else None
    if kind == "schedule" and not (choices and all(type(c) is int and c > 0 for c in choices)):
        help = "list the values that the tuner may try: `BLOCK: tl.schedule[64, 128] = 64`"
        fail("FER109", node.span, f"`{node.name}` needs positive integers to choose from", help)
    if choices and default is not None and default not in choices:
        help = f"choose one of {', '.join(map(repr, choices))}"
        fail("FER110", node.span, f"the default {default!r} of `{node.name}` is no choice", help)
    return Parameter(node.name, kind, node.span, choices=choices, default=default)


def _element_type(node: ast.Expr, lookup: Lookup) -> Any:
    try:
        return resolve(node, lookup)
    except CompileError:
        return None
