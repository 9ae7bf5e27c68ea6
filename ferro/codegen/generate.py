"""From a specialised kernel, a target and a config to OpenCL C."""

from __future__ import annotations

from dataclasses import replace

from ferro.codegen import emit_control, emit_dot, emit_memory, emit_q8, emit_reduce, subgroup
from ferro.codegen.axes import Dimensions
from ferro.codegen.dialect import Dialect, Ex
from ferro.codegen.emit import EMITS, PULLS, Emitter, Index, Weights
from ferro.codegen.errors import ConfigError
from ferro.codegen.expand import blocks_of, derived_pointers, expand, padded, unmarked
from ferro.codegen.functions import Functions
from ferro.codegen.inline import Plan
from ferro.codegen.layouts import A8_ROWS, Q8_ROWS, is_biased
from ferro.codegen.order import order
from ferro.codegen.pairs import side_by_side
from ferro.codegen.poly import Poly
from ferro.codegen.program import DOT_LOWERINGS, Argument, Config, Entry, Program, Target
from ferro.codegen.split import split_walk
from ferro.codegen.templates import render
from ferro.codegen.uniform import uniform_loads
from ferro.dsl.collisions import rewritten
from ferro.dsl.diagnostics import did_you_mean
from ferro.dsl.ir import Buffer, Extent, Kernel, Op, Pointer, Quantised, Value, walk

CODEGEN_VERSION = 1
_EMITTERS = (emit_control, emit_dot, emit_memory, emit_q8, emit_reduce)


def generate(kernel: Kernel, target: Target, config: Config) -> Program:
    """OpenCL C for ``kernel`` on ``target`` with the schedule ``config``.

    ``kernel`` is specialised with ``config.constants`` already; raises ConfigError if the lanes or
    the dot lowering are not possible on the target.
    """
    target = resolve(target, config)
    _check_labels(kernel, config)
    dialect = Dialect(target, target.lanes)
    functions = Functions(dialect, kernel.functions)
    parts, scratch = [kernel], tuple[Pointer, ...]()
    if config.split > 1:
        split = split_walk(kernel, config.split)
        parts, scratch = [split.chunks, split.combine], split.scratch
    try:
        written = [_entry(part, dialect, functions, config, scratch) for part in parts]
    except RecursionError:
        raise ConfigError(
            f"`{kernel.name}` computes a value in too many steps, each from the one before: "
            "let a loop over `range` take them, not one over `tl.static_range`"
        ) from None
    options = ("-cl-std=CL3.0",) if target.dot == "dp4a" else ("-cl-std=CL1.2",)
    source = render(
        target.kind,
        "program",
        kernel=kernel,
        target=target,
        config=config,
        entries=[entry for _, entry in written],
        parts=[*dialect.helpers.values(), *functions.texts.values(), *(t for t, _ in written)],
    )
    return Program(source, options, tuple(entry for _, entry in written), target, config)


def resolve(target: Target, config: Config) -> Target:
    """``target`` with the lanes and the dot lowering that ``config`` asks for.

    A lowering that needs another number of lanes, or an LLVM intrinsic where none can be declared,
    falls back to plain C. Raises ConfigError if lanes, dot or split are not possible.
    """
    lanes = target.lanes if config.lanes is None else config.lanes
    dot = config.dot or target.dot
    if dot not in DOT_LOWERINGS:
        raise ConfigError(f"dot={dot}: expected one of {', '.join(DOT_LOWERINGS)}")
    if config.split > 1 and config.group:
        raise ConfigError(f"split={config.split} group={config.group}: one of the two")
    if config.split < 1:
        raise ConfigError(f"split={config.split}: expected the number of work-groups, 1 or more")
    if lanes not in (2, 4, 8, 16, 32) or (lanes == 32 and target.kind == "simd"):
        raise ConfigError(f"lanes={lanes}: expected 2, 4, 8, 16 or (simt) 32")
    needs = {"vnni512": 16, "vnni256": 8, "avx2": 8}.get(dot)
    kind = "simd" if needs else "simt" if dot == "dp4a" else target.kind
    if kind != target.kind or (needs and (lanes != needs or not target.abi)):
        dot = "emulated"
    features = target.features
    if not subgroup.possible(target.kind, lanes):
        features -= {subgroup.FEATURE}
    if not config.prefetch:
        features -= {"prefetch"}
    return replace(target, lanes=lanes, dot=dot, features=features)


def _check_labels(kernel: Kernel, config: Config) -> None:
    labels = {op.attrs["axis"] for op in walk(kernel.body) if op.name == "arange"}
    for label in config.lane_axis:
        if label not in labels:
            there = ", ".join(sorted(labels)) or "none"
            raise ConfigError(
                f"lane_axis={label}: "
                + did_you_mean(label, labels, f"the index tiles of `{kernel.name}` are {there}")
            )


class _Prologue:
    """The kernel's parameters and the C variables that every access needs."""

    def __init__(self, kernel: Kernel, e: Emitter, scratch: tuple[Pointer, ...]) -> None:
        self.kernel = kernel
        self.scratch = {p.name: p for p in scratch}
        self.e = e
        self.parameters: list[str] = []
        self.arguments: list[Argument] = []
        self.polys: dict[Extent, Poly] = {}

    def write(self) -> None:
        e = self.e
        for scalar in self.kernel.scalars:
            name = e.names.fresh(scalar.name)
            dtype = scalar.value.dtype
            e.name_scalar(scalar.value, name)
            self.parameters.append(f"const {e.dialect.ctype(dtype)} {name}")
            self.arguments.append(Argument("scalar", scalar.name, dtype.name))
        used = {op.attrs.get("buffer", "").split(".")[0] for op in walk(self.kernel.body)}
        for buffer in self.kernel.buffers:
            self.arguments.append(self.argument(buffer))
            if isinstance(buffer, Pointer):
                self.pointer(buffer)
            else:
                self.quantised(buffer, buffer.name in used)

    def argument(self, buffer: Buffer) -> Argument:
        if buffer.name not in self.scratch:
            return Argument("buffer", buffer.name)
        size: Extent = ("const", self.scratch[buffer.name].dtype.size)
        for extent in buffer.extents:
            size = ("*", size, unmarked(extent))
        return Argument("scratch", buffer.name, bytes=size)

    def parameter(self, ctype: str, name: str, access: str) -> str:
        const = "const " if access == "in" else ""
        c = self.e.names.fresh(name)
        self.parameters.append(f"__global {const}{ctype}* restrict {c}")
        return c

    def pointer(self, buffer: Pointer) -> None:
        c = self.parameter(self.e.dialect.ctype(buffer.dtype), buffer.name, buffer.access)
        self.e.pointers[buffer.name] = (c, buffer)
        self.e.extents[buffer.name] = tuple(self.poly(x) for x in buffer.extents)

    def quantised(self, buffer: Quantised, used: bool) -> None:
        a8 = buffer.format == "a8"
        biased = is_biased(self.e.dialect.target.dot)
        c = self.parameter("char" if a8 else "uint", buffer.name, buffer.access)
        if not used:
            return
        blocks = self.poly(blocks_of(buffer.cols), f"{c}_blocks")
        rows = self.poly(padded(buffer.rows, A8_ROWS if a8 else Q8_ROWS), f"{c}_rows")
        const = "const " if buffer.access == "in" else ""
        starts: tuple[tuple[str, str, str], ...]
        if a8:
            area = rows * blocks
            starts = (
                ("q", "char", c),
                ("s", "float", f"{c} + {area * 32}"),
                ("b", "int", f"{c} + {area * 36}"),
            )
        else:
            small = buffer.format == "q4"
            byte = "uchar" if biased or small else "char"
            words = rows * blocks * (4 if small else 8)
            starts = (("q", byte, c), ("h", "ushort", f"{c} + {words}"))
            if small:
                # two halves a word: the minima begin half a word for each block later
                starts += (("m", "ushort", f"{c} + {rows * blocks * 4} + {rows * blocks} / 2"),)
        for (part, ctype, at), pointer in zip(
            starts, derived_pointers(buffer, biased), strict=True
        ):
            name = self.e.names.fresh(f"{buffer.name}_{part}")
            cast = f"__global {const}{ctype}*"
            self.e.line(f"{cast} {name} = ({cast})({at});")
            self.e.pointers[pointer.name] = (name, pointer)
            self.e.extents[pointer.name] = tuple(self.poly(x) for x in pointer.extents)
        if not a8:
            scales = self.e.pointers[f"{buffer.name}.h"][0]
            minima = self.e.pointers[f"{buffer.name}.m"][0] if buffer.format == "q4" else ""
            self.e.weights[buffer.name] = Weights(c, scales, minima, str(blocks))

    def poly(self, extent: Extent, name: str = "") -> Poly:
        """An extent as a polynomial; what is no polynomial becomes a C variable."""
        extent = unmarked(extent)
        if extent not in self.polys:
            self.polys[extent] = self._poly(extent, name)
        return self.polys[extent]

    def _poly(self, extent: Extent, name: str) -> Poly:
        op, *rest = extent
        if op == "const":
            return Poly.of(rest[0])
        if op == "name":
            value = next(s.value for s in self.kernel.scalars if s.name == rest[0])
            return self.e.affine.atoms.get(value) or Poly.of(f"(int){self.e.scalars[value].code}")
        a, b = (self.poly(x) for x in rest)
        if op in ("+", "-", "*"):
            return {"+": a + b, "-": a - b, "*": a * b}[op]
        wanted = name or f"extent_{len(self.polys)}"
        if op == "cdiv" and rest[1][0] == "const" and wanted.endswith("_rows"):
            wanted = wanted.replace("_rows", "_groups")
        code = {
            "//": f"{a.c} / ({b})",
            "%": f"{a.c} % ({b})",
            "cdiv": f"({a + b - 1}) / ({b})",
            "min": f"min({a.c}, {b.c})",
            "max": f"max({a.c}, {b.c})",
        }[op]
        c = self.e.names.fresh(wanted)
        self.e.line(f"const int {c} = {code};")
        return Poly.of(c)


def _entry(
    kernel: Kernel,
    dialect: Dialect,
    functions: Functions,
    config: Config,
    scratch: tuple[Pointer, ...],
) -> tuple[str, Entry]:
    """The text of one OpenCL kernel and how to launch it."""
    target = dialect.target
    expanded, sums = expand(kernel, target.lanes, is_biased(target.dot))
    expanded = side_by_side(expanded)
    dimensions = Dimensions(expanded, target.lanes, config.lane_axis)
    if target.kind == "simt" and not subgroup.has_sub_group(target):
        dimensions.uniform = uniform_loads(expanded, dimensions)
    plan = Plan(expanded, scales=dialect.kind == "simt")
    e = Emitter(expanded, dialect, dimensions, plan, sums, functions)
    name = e.names.fresh(kernel.name)
    if target.kind == "simt":
        e.names.fresh("lane")
    e.mark(kernel.span)
    head = e.writer.mark
    prologue = _Prologue(expanded, e, scratch)
    prologue.write()
    if target.kind == "simt":
        again = rewritten(kernel)  # `y`, where a store of blocks writes `y.q`, `y.s` and `y.b`
        e.shared_buffers |= {name for name in e.pointers if name.split(".")[0] in again}
    ordered = order(kernel, config.group)
    e.program_ids = ordered.ids
    if ordered.guard is not None:
        axis, extent = ordered.guard
        e.line(f"if ({ordered.ids[axis]} >= {prologue.poly(extent)}) return;")
    e.block(expanded.body)
    text = render(
        target.kind,
        "entry",
        mark=head,
        name=name,
        parameters=prologue.parameters,
        lanes=target.lanes,
        sub_group=subgroup.has_sub_group(target),
        locals=e.locals,
        lines=list(e.writer.root.render(1)),
    )
    local = (target.lanes, 1, 1) if target.kind == "simt" else (1, 1, 1)
    return text, Entry(name, tuple(prologue.arguments), ordered.groups, local)


def _pull_call(e: Emitter, op: Op, value: Value, index: Index, lane: int | None) -> Ex:
    args = [e.pull(a, index, lane) for a in op.args]
    e.functions.need(op.attrs["function"], any(a.wide for a in args))
    return e.dialect.apply(op, args, value)


def _emit_program_id(e: Emitter, op: Op) -> None:
    name = e.names.fresh(op.result.name or f"pid{op.attrs['axis']}")
    e.line(f"const int {name} = {e.program_ids[op.attrs['axis']]};")
    e.name_scalar(op.result, name)


def _emit_scalar(e: Emitter, op: Op) -> None:
    scalar = next(s for s in e.kernel.scalars if s.name == op.attrs["name"])
    e.name_scalar(op.result, e.scalars[scalar.value].code)


def _emit_nothing(e: Emitter, op: Op) -> None:
    return None


EMITS.update(program_id=_emit_program_id, scalar=_emit_scalar, breakpoint=_emit_nothing)
PULLS["call"] = _pull_call
