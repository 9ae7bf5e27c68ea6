"""Which axis of a tile lies on the lanes.

Axes that meet elementwise, in a product or through a loop are one *dimension*. Dimensions are
ranked; every tile puts its best-ranked axis on the lanes, provided that the lanes divide all
extents of that dimension. Tiles without such an axis are uniform: one copy for all lanes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ferro.dsl.ir import Kernel, Op, Value, walk

Axis = tuple[Value, int]


def strip_ones(shape: tuple[int, ...]) -> list[int]:
    return [i for i, n in enumerate(shape) if n != 1]


class Dimensions:
    """Union-find over (value, axis), built in one walk over the kernel."""

    def __init__(self, kernel: Kernel, lanes: int, wanted: tuple[str, ...]) -> None:
        self.parent: dict[Axis, Axis] = {}
        self.lanes = lanes
        self.extents: dict[Axis, set[int]] = defaultdict(set)
        self.weights: list[Axis] = []
        self.labels: dict[Axis, set[str]] = defaultdict(set)
        self.uniform: frozenset[Value] = frozenset()
        ops = list(walk(kernel.body))
        for op in ops:
            self.link(op)
        for op in ops:
            for value in (*op.results, *(p for b in op.blocks for p in b.params)):
                for axis, extent in enumerate(value.shape):
                    self.extents[self.find((value, axis))].add(extent)
            if op.name == "arange":
                self.labels[self.find((op.result, 0))].add(op.attrs.get("axis", ""))
        self.wanted = wanted
        # the layout of quantised weights is made for rows on lanes
        self.rows = {self.find(axis) for axis in self.weights}

    def find(self, axis: Axis) -> Axis:
        root = axis
        while (up := self.parent.get(root, root)) is not root and up != root:
            root = up
        while axis != root:
            self.parent[axis], axis = root, self.parent.get(axis, root)
        return root

    def join(self, a: Axis, b: Axis) -> None:
        ra, rb = self.find(a), self.find(b)
        if ra != rb:
            self.parent[ra] = rb

    def same(self, a: Value, b: Value) -> None:
        """Axis by axis, from the right, where neither extent is 1."""
        for i in range(1, min(len(a.shape), len(b.shape)) + 1):
            if a.shape[-i] == b.shape[-i] != 1:
                self.join((a, len(a.shape) - i), (b, len(b.shape) - i))

    def link(self, op: Op) -> None:
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, op)
            return
        shaped = [v for v in (*op.args, *op.results) if v.shape]
        for v in shaped[1:]:
            self.same(shaped[0], v)

    def eligible(self, dimension: Axis) -> bool:
        extents = [e for e in self.extents[dimension] if e != 1]
        return bool(extents) and all(e % self.lanes == 0 for e in extents)

    def rank(self, dimension: Axis) -> tuple[int, bool]:
        for place, label in enumerate(self.wanted):
            if label in self.labels[dimension]:
                return (len(self.wanted) - place, False)
        return (0, dimension in self.rows)

    def lane_axis(self, value: Value) -> int | None:
        """The axis of ``value`` that is on the lanes, or None."""
        if value in self.uniform:
            return None
        best: tuple[tuple[int, bool], int] | None = None
        for axis, extent in enumerate(value.shape):
            dimension = self.find((value, axis))
            if extent > 1 and self.eligible(dimension):
                rank = (self.rank(dimension), axis)
                if best is None or rank > best:
                    best = rank
        return None if best is None else best[1]


Rule = Callable[[Dimensions, Op], None]


def _expand(d: Dimensions, op: Op) -> None:
    x, axis = op.args[0], op.attrs["axis"]
    for i in range(len(x.shape)):
        d.join((x, i), (op.result, i if i < axis else i + 1))


def _transpose(d: Dimensions, op: Op) -> None:
    for i, source in enumerate(op.attrs["perm"]):
        d.join((op.args[0], source), (op.result, i))


def _reshape(d: Dimensions, op: Op) -> None:
    """Axes that keep their extent from either end, and the innermost ones of a regrouping."""
    x, y = op.args[0], op.result
    a, b = strip_ones(x.shape), strip_ones(y.shape)
    while a and b and x.shape[a[0]] == y.shape[b[0]]:
        d.join((x, a.pop(0)), (y, b.pop(0)))
    while a and b and x.shape[a[-1]] == y.shape[b[-1]]:
        d.join((x, a.pop()), (y, b.pop()))
    if a and b:
        inner, outer = sorted((x.shape[a[-1]], y.shape[b[-1]]))
        if outer % inner == 0:
            d.join((x, a[-1]), (y, b[-1]))


def _split(d: Dimensions, op: Op) -> None:
    halves = (op.args, op.results) if op.name == "split" else (op.results, op.args)
    (whole,), parts = halves
    for part in parts:
        for i in range(len(whole.shape)):
            if i != op.attrs["axis"] or op.attrs["how"] == "halves":
                d.join((whole, i), (part, i))
    for i in range(len(whole.shape)):
        d.join((parts[0], i), (parts[1], i))


def _reduce(d: Dimensions, op: Op) -> None:
    x, axis = op.args[0], op.attrs["axis"]
    for i in range(len(x.shape)):
        if i != axis:
            d.join((x, i), (op.result, i if i < axis else i - 1))
    if op.attrs["masked"]:
        d.same(x, op.args[1])


def _accumulate(d: Dimensions, op: Op) -> None:
    state, x, axis = op.args[0], op.args[1], op.attrs["axis"]
    d.same(state, op.result)
    last = len(state.shape) - 1
    others = [i for i in range(len(x.shape)) if i != axis]
    for to, i in enumerate(others):
        d.join((x, i), (state, to))
    d.join((x, axis), (state, last))
    if op.attrs["masked"]:
        d.same(x, op.args[2])


def _finish(d: Dimensions, op: Op) -> None:
    for i in range(len(op.result.shape)):
        d.join((op.args[0], i), (op.result, i))


def _dot(d: Dimensions, op: Op) -> None:
    a, b = op.args[0], op.args[1]
    d.join((a, 0), (op.result, 0))
    d.join((b, 1), (op.result, 1))
    d.join((a, 1), (b, 0))
    if len(op.args) == 3:
        d.same(op.args[2], op.result)


def _load_block(d: Dimensions, op: Op) -> None:
    for result in op.results:
        d.join((op.args[0], 0), (result, 0))
    d.weights.append((op.args[0], 0))


def _carries(d: Dimensions, op: Op) -> None:
    (body,) = op.blocks
    for init, param, new, result in zip(
        op.args[3:], body.params[1:], body.results, op.results, strict=True
    ):
        for other in (init, new, result):
            d.same(param, other)


def _if(d: Dimensions, op: Op) -> None:
    for block in op.blocks:
        for value, result in zip(block.results, op.results, strict=True):
            d.same(value, result)


def _walk(d: Dimensions, op: Op) -> None:
    body, rule = op.blocks
    n = len(op.results)
    for i, result in enumerate(op.results):
        for other in (body.results[i], rule.params[i], rule.params[n + i], rule.results[i]):
            d.same(result, other)
    if op.attrs.get("when"):
        when = body.results[n]
        for axis in range(len(when.shape)):
            for result in op.results:
                if when.shape[axis] == result.shape[axis] != 1:
                    d.join((when, axis), (result, axis))


def _nothing(d: Dimensions, op: Op) -> None:
    return None


_RULES: dict[str, Rule] = {
    "expand": _expand,
    "transpose": _transpose,
    "reshape": _reshape,
    "split": _split,
    "join": _split,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "finish": _finish,
    "dot": _dot,
    "dot_i8": _dot,
    "load_block": _load_block,
    "for": _carries,
    "if": _if,
    "walk": _walk,
    "breakpoint": _nothing,
}
