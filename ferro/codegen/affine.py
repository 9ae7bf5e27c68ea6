"""Index tiles as ``base + sum(stride[axis] * position)``: they are never stored as tiles."""

from __future__ import annotations

from dataclasses import dataclass

from ferro.codegen.axes import strip_ones
from ferro.codegen.poly import ZERO, Poly
from ferro.dsl.ir import Kernel, Op, Value, walk

_TAME = frozenset(
    """const scalar program_id arange broadcast expand reshape transpose add sub mul neg div mod
    min max""".split()
)
_LONGEST = 64  # factors of a base: what is longer gets a variable of its own


@dataclass(frozen=True)
class Affine:
    """``base`` and one ``stride`` per axis, in elements."""

    base: Poly
    strides: tuple[Poly, ...] = ()

    def __add__(self, other: Affine) -> Affine:
        strides = tuple(a + b for a, b in zip(self.strides, other.strides, strict=True))
        return Affine(self.base + other.base, strides)

    def scaled(self, factor: Poly | int) -> Affine:
        return Affine(self.base * factor, tuple(s * factor for s in self.strides))

    @property
    def uniform(self) -> bool:
        return all(s.is_zero() for s in self.strides)


class AffineAnalysis:
    """Memoised forms of integer values. ``atoms`` maps scalars that are C variables to names.

    ``counted`` are parameters, loop counters and bounds of chunks: the launch proves that what is
    computed from them alone stays within i32, while arithmetic on other numbers may wrap.
    """

    def __init__(self, defs: dict[Value, Op], counted: frozenset[Value]) -> None:
        self.defs = defs
        self.counted = counted
        self.atoms: dict[Value, Poly] = {}
        self._known: dict[Value, Affine | None] = {}
        self._tame: dict[Value, bool] = {}

    def name(self, value: Value, name: str) -> None:
        """``value`` is the C variable ``name`` from here on."""
        self.atoms[value] = Poly.of(name) if self.tame(value) else Poly.wrapping(name)

    def tame(self, value: Value) -> bool:
        """True if arithmetic on ``value`` does not wrap."""
        if value not in self._tame:
            self._tame[value] = self._tamed(value)
        return self._tame[value]

    def _tamed(self, value: Value) -> bool:
        op = self.defs.get(value)
        if op is None or op.name not in _TAME:
            return value in self.counted
        some = any if op.name in ("min", "max") else all
        return some(self.tame(a) for a in op.args)

    def of(self, value: Value) -> Affine | None:
        if value in self.atoms:
            return Affine(self.atoms[value])
        if value not in self._known:
            self._known[value] = self._compute(value)
        return self._known[value]

    def _compute(self, value: Value) -> Affine | None:
        op = self.defs.get(value)
        if op is None or value.dtype.name != "i32":
            return None
        if op.name == "const":
            return Affine(Poly.of(int(op.attrs["value"])))
        if op.name == "arange":
            return Affine(Poly.of(op.attrs["start"]), (Poly.of(1),))
        args = [self.of(a) for a in op.args]
        known = [a for a in args if a is not None]
        if len(known) < len(args) or not args:
            return None
        if op.name in _VIEWS:
            strides = _VIEWS[op.name](op, known[0].strides)
            return None if strides is None else Affine(known[0].base, strides)
        found = self._arithmetic(op.name, known)
        return found if found is None or found.base.factors <= _LONGEST else None

    @staticmethod
    def _arithmetic(name: str, args: list[Affine]) -> Affine | None:
        if name == "add":
            return args[0] + args[1]
        if name == "sub":
            return args[0] + args[1].scaled(-1)
        if name == "neg":
            return args[0].scaled(-1)
        if name == "mul":
            for a, b in (args, args[::-1]):
                if b.uniform:
                    return a.scaled(b.base)
        if name == "shl" and args[1].uniform and args[1].base.constant is not None:
            return args[0].scaled(1 << (args[1].base.constant & 31))
        return None


def counted(kernel: Kernel) -> frozenset[Value]:
    """Scalars that are no data: see ``AffineAnalysis``."""
    found = {s.value for s in kernel.scalars}
    for op in walk(kernel.body):
        if op.name == "for":
            found.add(op.blocks[0].params[0])
        elif op.name == "walk":
            found.update(op.blocks[0].params)
    return frozenset(found)


Strides = tuple[Poly, ...]


def _broadcast(op: Op, strides: Strides) -> Strides:
    shape, wide = op.args[0].shape, op.result.shape
    lead = len(wide) - len(shape)
    own = tuple(s if shape[i] == wide[lead + i] else ZERO for i, s in enumerate(strides))
    return (ZERO,) * lead + own


def _expand(op: Op, strides: Strides) -> Strides:
    axis = op.attrs["axis"]
    return (*strides[:axis], ZERO, *strides[axis:])


def _transpose(op: Op, strides: Strides) -> Strides:
    return tuple(strides[p] for p in op.attrs["perm"])


def _reshape(op: Op, strides: Strides) -> Strides | None:
    old, new = op.args[0].shape, op.result.shape
    a, b = strip_ones(old), strip_ones(new)
    out = [ZERO] * len(new)
    if [old[i] for i in a] == [new[i] for i in b]:
        for i, j in zip(a, b, strict=True):
            out[j] = strides[i]
        return tuple(out)
    if len(a) == 1:
        step = strides[a[0]]
        for j in reversed(b):
            out[j] = step
            step = step * new[j]
        return tuple(out)
    return None


_VIEWS = {
    "broadcast": _broadcast,
    "expand": _expand,
    "transpose": _transpose,
    "reshape": _reshape,
}
