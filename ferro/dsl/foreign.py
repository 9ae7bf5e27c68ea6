"""Names that authors bring from Python, numpy and Triton, and what to write instead."""

from __future__ import annotations

_PROGRAMS = "programs run in any order and share nothing: reduce in one program, or in two kernels"
_SHAPE = "extents are names: declare `x: tl.ptr[tl.f32, M, K]` and use `M` and `K`"

HINTS: dict[str, str] = {
    "float": "convert with `x.to(tl.f32)`",
    "int": "convert with `x.to(tl.i32)`",
    "bool": "compare: `x != 0`",
    "len": _SHAPE,
    "shape": _SHAPE,
    "print": "use `breakpoint()`: the interpreter stops there on request",
    "device_print": "use `breakpoint()`: the interpreter stops there on request",
    "sum": "use `tl.sum(x, axis=...)`",
    "round": "use `tl.rint(x)`, ties to even",
    "pow": "multiply, or use `tl.exp(b * tl.log(a))`",
    "exp2": "use `tl.exp(x * 0.6931472)`",
    "log2": "use `tl.log(x) * 1.442695`",
    "constexpr": "use `tl.const`, or `tl.schedule[...]` for a tile size",
    "num_programs": "it is the count given to `tl.program_id(axis, count)`",
    "cat": "use `tl.join(a, b)`",
    "softmax": "take the maximum, `tl.exp` and the sum: kernels_src/softmax.py shows how",
    "mean": "divide a sum: `tl.sum(x) / n.to(tl.f32)`",
    "cumsum": "there are no scans: walk over the axis in a loop",
    "sort": "there is no sorting: `tl.argmax` finds the largest element",
    "transpose": "use `x.T` or `tl.permute(x, axes)`",
    "atomic_add": _PROGRAMS,
    "atomic_max": _PROGRAMS,
    "debug_barrier": _PROGRAMS,
}
