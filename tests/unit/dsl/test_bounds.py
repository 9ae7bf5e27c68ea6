"""Bounds: what is proved, what is refused, and that a proof is never wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferro.dsl import bounds, ir, launch
from ferro.dsl.interpreter import OutOfRangeError, interpret
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import LaunchError


def specialised(text: str, **constants: Any) -> ir.Kernel:
    return KernelDefinition.from_source(text, "kernel.py").specialise(**constants)


def check(text: str, arguments: dict[str, Any], **constants: Any) -> None:
    made = specialised(text, **constants)
    bound = launch.bind(made, arguments)
    bounds.check(made, bound.scalars, bound.grid, bound.extents)


def refused(text: str, arguments: dict[str, Any], **constants: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        check(text, arguments, **constants)
    return caught.value


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def integers(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


def vector(index: str, mask: str, extra: str = "", extent: str = "N") -> str:
    """A kernel that loads x[index] for n in 0..N-1 in tiles of 64."""
    given = f", mask={mask}, other=0.0" if mask else ""
    return f"""
def f(x: tl.ptr[f32, {extent}], y: tl.out[f32, N]{extra}):
    n = tl.block(0, N, 64)
    tl.store(y[n], tl.load(x[{index}]{given}), mask=n < N)
""".lstrip()


def run_vector(index: str, mask: str, size: int = 100, **more: Any) -> None:
    check(vector(index, mask, **more), {"x": floats(size), "y": floats(size)})


@pytest.mark.parametrize(
    ("index", "mask"),
    [
        ("n", "n < N"),
        ("n", "N > n"),
        ("n", "~(n >= N)"),
        ("n - 3", "(n >= 3) & (n < N)"),
        ("n - 3", "(n - 3 >= 0) & (n - 3 < N)"),
        ("N - 1 - n", "n < N"),
        ("tl.minimum(n, N - 1)", ""),
        ("tl.clamp(n - 7, 0, N - 1)", ""),
        ("n // 2", "n < N"),
        ("n % N", ""),
        ("(n * 2) // 2", "n < N"),
        ("tl.where(n < N, n, 0)", ""),
        ("tl.where(n < 4, -(n - 4), n)", "n < N"),
        ("tl.abs(n - 5)", "n < N"),
        ("tl.maximum(n, 2) - 2", "n < N"),
        ("n * 0", ""),
        ("n & 63", "n < N"),
        ("n >> 1", "n < N"),
        ("(n << 1) >> 1", "n < N"),
        ("n", "(n < N) & (n != 3)"),
    ],
)
def test_proved(index: str, mask: str) -> None:
    run_vector(index, mask)


@pytest.mark.parametrize(
    ("index", "mask", "missing"),
    [
        ("n", "", "(n < N)"),
        ("n", "n <= N", "(n < N)"),
        ("n + 1", "n < N", "< N"),
        ("n - 1", "n < N", ">= 0"),
        ("n - 3", "(n >= 2) & (n < N)", ">= 0"),
        ("n * 2", "n < N", "< N"),
        ("n", "(n < N) | (n == 127)", "(n < N)"),
        ("tl.maximum(n, N)", "n < N", "< N"),
        ("tl.abs(n - 200)", "n < N", "< N"),
        ("tl.where(n < N, n, -1)", "", ">= 0"),
        ("n ^ 1", "n < N", "< N"),
    ],
)
def test_refused(index: str, mask: str, missing: str) -> None:
    error = refused(vector(index, mask), {"x": floats(100), "y": floats(100)})
    (finding,) = error.diagnostics
    assert finding.code == "FER701"
    assert missing in finding.help
    assert "extent N = 100" in finding.notes[1]
    assert finding.span.line == 3


def test_message(golden: Any) -> None:
    golden(
        "bounds_outside",
        refused(vector("n + 1", ""), {"x": floats(70), "y": floats(70)}).text + "\n",
    )


def together(text: str, **arguments: Any) -> list[str]:
    with pytest.raises(LaunchError) as caught:
        bounds.bind(specialised(text), arguments)
    return [d.code for d in caught.value.diagnostics]


SCALED = """
def f(x: tl.ptr[f32, N], y: tl.out[f32, N], scale: tl.f32, shift: tl.i32[0, 9]):
    i = tl.arange(0, 128)
    tl.store(y[i], tl.load(x[i + shift], mask=i < N, other=0.0) * scale)
"""


def test_accesses_are_told_with_the_other_errors_of_a_launch() -> None:
    x, y = floats(100), floats(100)
    assert together(SCALED, x=x.astype(float), y=y, scale="2", shift=0) == ["FER605", "FER604"]
    wide = x.astype(float)
    assert together(SCALED, x=wide, y=y, scale=2, shift=0) == ["FER605", "FER701"]
    assert together(SCALED, x=wide, y=x[::-1], scale=2, shift=1)[-2:] == ["FER701", "FER701"]


@pytest.mark.parametrize(
    "unknown", [{"x": None}, {"x": floats(99)}, {"shift": 10}, {"shift": None}, {"y": floats(9, 9)}]
)
def test_accesses_are_not_judged_while_a_number_is_unknown(unknown: dict[str, Any]) -> None:
    given = {"x": floats(100), "y": floats(100), "scale": 2, "shift": 1, **unknown}
    assert "FER701" not in together(SCALED, **given)


def test_a_tile_that_divides_the_extent_needs_no_mask() -> None:
    run_vector("n", "", size=128)


def test_empty_extents_and_empty_grids_are_fine() -> None:
    run_vector("n", "n < N", size=0)


LOOP = """
def f(x: tl.ptr[f32, M, K], y: tl.out[f32, M, K]):
    row = tl.program_id(0, M)
    for c in tl.chunks(K, {chunk}):
        for k0 in range(c.start, c.stop, 32):
            k = k0 + tl.arange(0, 32)
            v = tl.load(x[row, k]{mask})
            tl.store(y[row, k], v, mask=k < c.stop)
        top = tl.combine(tl.maximum, 0.0)
""".lstrip()


@pytest.mark.parametrize("k", [0, 1, 31, 64, 100, 4096, 5000])
def test_a_chunks_end_is_within_the_length(k: int) -> None:
    text = LOOP.format(chunk=512, mask=", mask=k < c.stop")
    check(text, {"x": floats(2, k), "y": floats(2, k)})


def test_chunks_of_whole_tiles_need_no_mask() -> None:
    text = LOOP.format(chunk=512, mask="")
    check(text, {"x": floats(2, 1024), "y": floats(2, 1024)})
    assert "FER701" in refused(text, {"x": floats(2, 1030), "y": floats(2, 1030)}).text


def test_mask_of_another_axis_does_not_count() -> None:
    text = """
def f(x: tl.ptr[f32, N, N], y: tl.out[f32, N, N]):
    a = tl.arange(0, 16)
    v = tl.load(x[a[:, None], a[None, :]], mask=(a < N)[:, None], other=0.0)
    tl.store(y[a[:, None], a[None, :]], v, mask=(a < N)[:, None] & (a < N)[None, :])
""".lstrip()
    (finding,) = refused(text, {"x": floats(9, 9), "y": floats(9, 9)}).diagnostics
    assert "axis 1 of `x`" in finding.message


def test_transposed_tiles_keep_their_mask() -> None:
    text = """
def f(x: tl.ptr[f32, M, N], y: tl.out[f32, N, M]):
    m = tl.arange(0, 16)
    n = tl.arange(0, 32)
    inside = (m < M)[:, None] & (n < N)[None, :]
    v = tl.load(x[m[:, None], n[None, :]], mask=inside, other=0.0)
    tl.store(y[n[:, None], m[None, :]], v.T, mask=inside.T)
""".lstrip()
    check(text, {"x": floats(9, 20), "y": floats(20, 9)})


GATHER = """
def f(x: tl.ptr[f32, N], at: tl.ptr[i32, T], y: tl.out[f32, T]):
    t = tl.block(0, T, 32)
    i = tl.load(at[t], mask=t < T, other=0)
    {line}
    tl.store(y[t], tl.load(x[i], mask={mask}, other=0.0), mask=t < T)
""".lstrip()


@pytest.mark.parametrize(
    ("line", "mask"),
    [
        ("pass", "(i >= 0) & (i < N)"),
        ("i = tl.clamp(i, 0, N - 1)", "t < T"),
        ("i = tl.minimum(tl.maximum(i, 0), N)", "i < N"),
        ("i = i % N", "i >= 0"),
    ],
)
def test_data_that_is_masked_or_clamped(line: str, mask: str) -> None:
    check(GATHER.format(line=line, mask=mask), {"x": floats(9), "at": integers(5), "y": floats(5)})


@pytest.mark.parametrize(
    ("line", "mask"),
    [("pass", "t < T"), ("pass", "i < N"), ("i = i % N", "t < T"), ("i = i + t", "i < N")],
)
def test_data_that_may_be_anything(line: str, mask: str) -> None:
    text = GATHER.format(line=line, mask=mask)
    error = refused(text, {"x": floats(9), "at": integers(5), "y": floats(5)})
    assert {d.code for d in error.diagnostics} == {"FER701"}


def test_a_sum_of_data_may_wrap_and_proves_nothing() -> None:
    text = GATHER.format(line="i = i + t", mask="(i - t >= 0) & (i - t < N - t) & (i >= 0)")
    refused(text, {"x": floats(9), "at": integers(5), "y": floats(5)})


def test_conditions_of_branches_count() -> None:
    text = """
def f(x: tl.ptr[f32, N], y: tl.out[f32, N], n: tl.i32):
    if n >= 0:
        if n < N:
            tl.store(y[n], tl.load(x[n]))
    if n < 0:
        tl.store(y[0], 1.0)
    else:
        tl.store(y[tl.minimum(n, N - 1)], 2.0)
""".lstrip()
    for n in (-5, 3, 100):
        check(text, {"x": floats(9), "y": floats(9), "n": n})


ROUND = """
def f(x: tl.ptr[f32, N], y: tl.out[f32, 8], shift: tl.i32[0, 100]):
    n = tl.arange(0, 8)
    tl.store(y[n], tl.load(x[n + shift]))
""".lstrip()


def test_a_scalars_range_is_tried_before_its_value() -> None:
    made = specialised(ROUND)
    for size, shift in ((108, 7), (20, 12)):
        bound = launch.bind(made, {"x": floats(size), "y": floats(8), "shift": shift})
        bounds.check(made, bound.scalars, bound.grid, bound.extents)
    with pytest.raises(LaunchError):
        bounds.check(made, {**bound.scalars, "shift": 13}, bound.grid, bound.extents)


def test_ranges_of_accesses() -> None:
    made = specialised(ROUND)
    bound = launch.bind(made, {"x": floats(20), "y": floats(8), "shift": 12})
    found = bounds.access_ranges(made, bound.scalars, bound.grid, bound.extents)
    assert [(a.buffer, a.access, a.lo, a.hi, a.extent, a.proved) for a in found] == [
        ("x", "load", 12, 19, 20, True),
        ("y", "store", 0, 7, 8, True),
    ]


def test_blocks_of_quantised_rows() -> None:
    text = """
def f(w: tl.q8[N, K], y: tl.out[f32, N], last: tl.i32[0, 100]):
    n = tl.arange(0, 4)
    q, s = tl.load_block(w, n, last, mask=n < N)
    tl.store(y[n], s, mask=n < N)
""".lstrip()
    from ferro.dsl.quantised import Q8

    w = Q8.quantize(np.ones((3, 33), np.float32))
    check(text, {"w": w, "y": floats(3), "last": 1})
    (finding,) = refused(text, {"w": w, "y": floats(3), "last": 2}).diagnostics
    assert "cdiv(K, 32) = 2" in finding.notes[1]


# overflow


def test_index_arithmetic_that_may_wrap(golden: Any) -> None:
    text = """
def f(x: tl.ptr[f32, N], y: tl.out[f32, N], stride: tl.i32):
    n = tl.block(0, N, 64)
    place = n * stride
    inside = (place >= 0) & (place < N)
    tl.store(y[n], tl.load(x[place], mask=inside, other=0.0), mask=n < N)
""".lstrip()
    check(text, {"x": floats(100), "y": floats(100), "stride": 1000})
    error = refused(text, {"x": floats(100), "y": floats(100), "stride": 2**30})
    golden("bounds_overflow", error.text + "\n")


def test_arithmetic_that_reaches_no_index_may_wrap() -> None:
    text = """
def f(y: tl.out[i32, N], salt: tl.i32):
    n = tl.block(0, N, 64)
    tl.store(y[n], n * 1103515245 + salt * 12345, mask=n < N)
""".lstrip()
    check(text, {"y": integers(100), "salt": 2**31 - 1})


def test_a_counter_that_may_wrap() -> None:
    text = """
def f(y: tl.out[f32, N], stop: tl.i32):
    for k in range(0, stop, 64):
        tl.store(y[0], 1.0)
""".lstrip()
    check(text, {"y": floats(1), "stop": 2**31 - 64})
    (finding,) = refused(text, {"y": floats(1), "stop": 2**31 - 1}).diagnostics
    assert finding.code == "FER702"


def test_a_carried_index_is_followed() -> None:
    text = """
def f(x: tl.ptr[f32, N], y: tl.out[f32, N]):
    at = 0
    for k in range(0, N):
        tl.store(y[at], tl.load(x[at], mask=at < N, other=0.0), mask=at < N)
        at = tl.minimum(at + 1, N)
""".lstrip()
    check(text, {"x": floats(9), "y": floats(9)})


GROWING = """
def f(x: tl.ptr[f32, K], y: tl.out[f32, 1]):
    k = tl.arange(0, 32)
    left = K + 0
    top = tl.full([], 0.0, f32)
    for i in range(0, tl.cdiv(K, 32)):
        top = top + tl.max(tl.load(x[k]{mask}))
        top = top + tl.load(x[K - left])
        k += 32
        left -= 32
    tl.store(y[0], top)
""".lstrip()


def test_an_index_that_grows_with_the_loop() -> None:
    masked = GROWING.format(mask=", mask=k < K, other=0.0")
    for size in (0, 1, 32, 100):
        check(masked, {"x": floats(size), "y": floats(1)})
    whole = GROWING.format(mask="")
    check(whole, {"x": floats(96), "y": floats(1)})
    assert "[0, 127]" in refused(whole, {"x": floats(97), "y": floats(1)}).text


# A proof is never wrong: random index expressions, run by the interpreter where they are accepted.

LEAVES = ["n", "k", "s", "t", "N", "3", "8", "m"]
integer = st.recursive(
    st.sampled_from(LEAVES),
    lambda e: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*"]), e, e).map(lambda t: f"({t[1]} {t[0]} {t[2]})"),
        st.tuples(st.sampled_from(["//", "%"]), e, st.sampled_from(["3", "8", "N"])).map(
            lambda t: f"({t[1]} {t[0]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["minimum", "maximum"]), e, e).map(
            lambda t: f"tl.{t[0]}({t[1]}, {t[2]})"
        ),
        st.tuples(e, e, e, e).map(lambda t: f"tl.where({t[0]} < {t[1]}, {t[2]}, {t[3]})"),
        e.map(lambda x: f"tl.abs({x} + n * 0)"),
    ),
    max_leaves=5,
)
comparison = st.tuples(integer, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), integer).map(
    lambda t: f"({t[0]} {t[1]} {t[2]})"
)
condition = st.recursive(
    comparison,
    lambda c: st.one_of(
        st.tuples(c, st.sampled_from("&&&|"), c).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        c.map(lambda x: f"(~{x})"),
    ),
    max_leaves=3,
)
RANDOM = """
def f(x: tl.ptr[i32, N], y: tl.out[i32, N], s: tl.i32[-3, 12]):
    p = tl.program_id(0, 2)
    n = p * 8 + tl.arange(0, 8)
    m = tl.load(x[tl.minimum(n, N - 1)])
    for k in range(s, N, 3):
        t = k + n
        i = {index} + n * 0
        b = ({mask}) & (n >= 0)
        tl.store(y[n], tl.load(x[i], mask=b{bound}, other=0), mask=n < N)
"""


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    integer,
    condition,
    st.sampled_from(["", " & (i >= 0)", " & (i < N)", " & (i >= 0) & (i < N)"]),
    st.integers(1, 20),
    st.integers(-3, 12),
    st.integers(-30, 30),
)
def test_what_is_proved_never_leaves_a_buffer(
    index: str, mask: str, bound: str, size: int, s: int, value: int
) -> None:
    made = specialised(RANDOM.format(index=index, mask=mask, bound=bound).lstrip())
    arguments = {"x": np.full(size, value, np.int32), "y": np.zeros(size, np.int32), "s": s}
    bound_launch = launch.bind(made, arguments)
    try:
        bounds.check(made, bound_launch.scalars, bound_launch.grid, bound_launch.extents)
    except LaunchError:
        return
    interpret(made, bound_launch.buffers, bound_launch.scalars, bound_launch.grid)


def test_the_interpreter_would_notice() -> None:
    made = specialised(RANDOM.format(index="n + 5", mask="n < N", bound="").lstrip())
    arguments = {"x": integers(12), "y": integers(12), "s": 0}
    bound = launch.bind(made, arguments)
    with pytest.raises(OutOfRangeError):
        interpret(made, bound.buffers, bound.scalars, bound.grid)
