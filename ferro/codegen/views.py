"""Views: which register of the source tile a register of the view is."""

from __future__ import annotations

from ferro.codegen.axes import strip_ones
from ferro.codegen.poly import ZERO, Poly
from ferro.dsl.ir import Op, Value

Source = tuple[Value, tuple[Poly, ...], int | None]


def view_index(
    op: Op, value: Value, index: tuple[Poly, ...], lane: int | None, lanes: int
) -> Source | None:
    """(source, its register index, its lane axis), or None if lanes would have to move."""
    return _VIEWS[op.name](op, value, index, lane, lanes)


def _broadcast(
    op: Op, value: Value, index: tuple[Poly, ...], lane: int | None, lanes: int
) -> Source:
    x = op.args[0]
    lead = len(value.shape) - len(x.shape)
    own = tuple(
        index[lead + i] if n == value.shape[lead + i] else ZERO for i, n in enumerate(x.shape)
    )
    if lane is None or lane < lead or x.shape[lane - lead] != value.shape[lane]:
        return x, own, None
    return x, own, lane - lead


def _expand(op: Op, value: Value, index: tuple[Poly, ...], lane: int | None, lanes: int) -> Source:
    axis = op.attrs["axis"]
    inner = None if lane is None else lane - (lane > axis)
    return op.args[0], (*index[:axis], *index[axis + 1 :]), inner


def _transpose(
    op: Op, value: Value, index: tuple[Poly, ...], lane: int | None, lanes: int
) -> Source:
    perm = op.attrs["perm"]
    own = [ZERO] * len(perm)
    for i, p in enumerate(perm):
        own[p] = index[i]
    return op.args[0], tuple(own), None if lane is None else perm[lane]


def _split(
    op: Op, value: Value, index: tuple[Poly, ...], lane: int | None, lanes: int
) -> Source | None:
    x, axis, which = op.args[0], op.attrs["axis"], op.results.index(value)
    half = value.shape[axis]
    own = list(index)
    if op.attrs["how"] == "halves":
        if lane == axis and half % lanes:
            return None
        own[axis] = own[axis] + which * (half // lanes if lane == axis else half)
    elif lane == axis:
        return None
    else:
        own[axis] = own[axis] * 2 + which
    return x, tuple(own), lane


def _reshape(
    op: Op, value: Value, index: tuple[Poly, ...], lane: int | None, lanes: int
) -> Source | None:
    x = op.args[0]
    own = [ZERO] * len(x.shape)
    inner: int | None = None
    for sources, targets in _groups(x.shape, value.shape):
        steps = [value.shape[t] for t in targets]
        sizes = [x.shape[s] for s in sources]
        if lane in targets:
            if targets[-1] != lane or sizes[-1] % lanes:
                return None
            steps[-1] //= lanes
            sizes[-1] //= lanes
            inner = sources[-1]
        flat = ZERO
        for t, n in zip(targets, steps, strict=True):
            flat = flat * n + index[t]
        for s, i in zip(sources, _unflatten(flat, sizes), strict=True):
            own[s] = i
    return x, tuple(own), inner


def _unflatten(flat: Poly, sizes: list[int]) -> list[Poly]:
    out: list[Poly] = []
    for position, n in reversed(list(enumerate(sizes))):
        if position == 0:
            out.insert(0, flat)
        elif n == 1:
            out.insert(0, ZERO)
        elif flat.constant is not None:
            out.insert(0, Poly.of(flat.constant % n))
            flat = Poly.of(flat.constant // n)
        else:
            out.insert(0, Poly.of(f"({flat}) % {n}".join("()")))
            flat = Poly.of(f"({flat}) / {n}".join("()"))
    return out


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Axes (extents of 1 left out) that are regrouped together, row-major."""
    a, b = strip_ones(old), strip_ones(new)
    groups: list[tuple[list[int], list[int]]] = []
    while a and b:
        left, right = [a.pop(0)], [b.pop(0)]
        m, n = old[left[0]], new[right[0]]
        while m != n:
            if m < n:
                left.append(a.pop(0))
                m *= old[left[-1]]
            else:
                right.append(b.pop(0))
                n *= new[right[-1]]
        groups.append((left, right))
    return groups


_VIEWS = {
    "broadcast": _broadcast,
    "expand": _expand,
    "transpose": _transpose,
    "split": _split,
    "reshape": _reshape,
}
