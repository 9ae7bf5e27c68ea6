"""Binding of arguments: what is accepted, and every message about what is not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ferro.dsl import ir, launch
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import LaunchError, bind
from ferro.dsl.quantised import A8, Q8

Golden = Callable[[str, str], None]

TEXT = """@kernel
def mix(x: tl.ptr[f32, M, K], w: tl.ptr[f16, K + 1], y: tl.out[f32, M, K], scale: tl.f32,
        count: tl.i32[1, 8], bits: tl.u32, BLOCK: tl.schedule[32, 64] = 32):
    row = tl.program_id(0, M)
    n = tl.program_id(1, count)
    k = tl.arange(0, 32)
    v = tl.load(x[row, k], mask=k < K, other=0.0) * scale
    g = tl.load(w[k], mask=k < K, other=0.0).to(f32)
    tl.store(y[row, k], v * g + (bits + tl.u32(count)).to(f32), mask=k < K)
"""
QUANTISED = """@kernel
def blocks(w: tl.q8[N, K], x: tl.a8[M, K], y: tl.a8_out[M, K], z: tl.out[f32, M, N]):
    m = tl.arange(0, 8)
    q, s = tl.load_block(x, m, 0, mask=m < M)
    wq, ws = tl.load_block(w, m, 0, mask=m < N)
    tl.store_block(y, m, 0, q, s, mask=m < M)
    d = tl.dot_i8(q, wq.T).to(f32) * ws[None, :]
    tl.store(z[m[:, None], m[None, :]], d, mask=(m < M)[:, None] & (m < N)[None, :])
"""


def kernel(text: str = TEXT) -> ir.Kernel:
    return KernelDefinition.from_source(text, "kernel.py").specialise()


def arguments(**changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "x": np.zeros((3, 20), np.float32),
        "w": np.zeros(21, np.float16),
        "y": np.zeros((3, 20), np.float32),
        "scale": 2.0,
        "count": 2,
        "bits": 7,
    }
    return {**given, **changed}


def quantised(**changed: Any) -> dict[str, Any]:
    rows = np.ones((4, 40), np.float32)
    given: dict[str, Any] = {
        "w": Q8.quantize(rows[:2]),
        "x": A8.quantize(rows),
        "y": A8.empty(4, 40),
        "z": np.zeros((4, 2), np.float32),
    }
    return {**given, **changed}


def refused(text: str, given: dict[str, Any]) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        bind(kernel(text), given)
    return caught.value


def test_binding() -> None:
    given = arguments()
    bound = bind(kernel(), given)
    assert bound.buffers["x"] is given["x"]
    assert bound.scalars == {"scale": 2.0, "count": 2, "bits": 7, "M": 3, "K": 20}
    assert bound.grid == (3, 2)
    assert bound.extents == {"x": (3, 20), "w": (21,), "y": (3, 20)}
    assert bound.key == (("K", 20), ("M", 3), ("count", 2))
    assert not bound.empty


def test_a_kernel_binds_many_shapes() -> None:
    made = kernel()
    for rows, count in ((3, 2), (5, 2), (3, 1)):
        given = arguments(
            x=np.zeros((rows, 20), np.float32), y=np.zeros((rows, 20), np.float32), count=count
        )
        assert bind(made, given).grid == (rows, count)


def test_quantised_binding() -> None:
    bound = bind(kernel(QUANTISED), quantised())
    assert bound.extents == {"w": (2, 40), "x": (4, 40), "y": (4, 40), "z": (4, 2)}


def test_empty_grids_are_bound() -> None:
    empty = np.zeros((0, 20), np.float32)
    assert bind(kernel(), arguments(x=empty, y=empty.copy())).empty


def test_numpy_numbers_are_scalars() -> None:
    bound = bind(kernel(), arguments(scale=np.float32(0.5), count=np.int64(3), bits=np.uint8(1)))
    assert bound.scalars["count"] == 3
    assert bound.scalars["scale"] == 0.5


def test_any_array_with_shape_and_dtype_is_a_buffer() -> None:
    class Buffer:
        shape = (3, 20)
        dtype = np.dtype(np.float32)

    assert bind(kernel(), arguments(x=Buffer(), y=Buffer())).grid == (3, 2)


def test_inputs_may_share_memory() -> None:
    bind(kernel(QUANTISED), quantised(w=Q8.quantize(np.ones((2, 40), np.float32))))
    data = np.zeros((4, 20), np.float32)
    bind(kernel(), arguments(x=data[:3], y=np.zeros((3, 20), np.float32)))


def test_nan_is_an_f32() -> None:
    assert np.isnan(bind(kernel(), arguments(scale=float("nan"))).scalars["scale"])


READ_ONLY = np.zeros((3, 20), np.float32)
READ_ONLY.flags.writeable = False
SHARED = np.zeros((3, 20), np.float32)
ROWS = np.zeros((6, 20), np.float32)

CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "missing": lambda: {k: v for k, v in arguments().items() if k not in ("w", "count")},
    "unknown": lambda: arguments(scal=1.0, other=2),
    "dtype": lambda: arguments(x=np.zeros((3, 20)), w=np.zeros(21, np.float32)),
    "byte_order": lambda: arguments(x=np.zeros((3, 20), ">f4")),
    "rank": lambda: arguments(x=np.zeros(20, np.float32)),
    "extent": lambda: arguments(y=np.zeros((4, 20), np.float32)),
    "computed_extent": lambda: arguments(w=np.zeros(20, np.float16)),
    "not_contiguous": lambda: arguments(x=np.zeros((20, 3), np.float32).T),
    "not_an_array": lambda: arguments(x=[1.0, 2.0]),
    "read_only": lambda: arguments(y=READ_ONLY),
    "aliased": lambda: arguments(x=SHARED, y=SHARED),
    "overlapping": lambda: arguments(x=ROWS[1:4], y=ROWS[:3]),
    "out_of_range": lambda: arguments(count=9, bits=-1),
    "too_large_for_i32": lambda: arguments(bits=2**32),
    "fraction_for_integer": lambda: arguments(count=2.0),
    "nan_for_integer": lambda: arguments(count=float("nan")),
    "bool_for_number": lambda: arguments(count=True),
    "text_for_number": lambda: arguments(scale="2"),
    "too_large_for_f32": lambda: arguments(scale=1e39),
    "many_at_once": lambda: arguments(x=np.zeros((3, 20)), y=READ_ONLY, count=0),
    "many_of_one_array": lambda: arguments(x=np.zeros((20, 3, 2)).T),
    "a_missing_array_hides_no_extent": lambda: arguments(x=None, y=np.zeros((3, 22), np.float32)),
    "no_extent_is_known": lambda: arguments(x=None, y=[1.0], w=None),
}
QUANTISED_CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "array_for_q8": lambda: quantised(w=np.zeros((2, 40), np.float32)),
    "a8_for_q8": lambda: quantised(w=A8.empty(2, 40)),
    "q8_for_array": lambda: quantised(z=Q8.quantize(np.ones((4, 2), np.float32))),
    "quantised_extent": lambda: quantised(y=A8.empty(4, 41)),
    "quantised_alias": lambda: {**quantised(), "x": (same := A8.empty(4, 40)), "y": same},
}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str, golden: Golden) -> None:
    golden(f"../golden_launch/{name}", refused(TEXT, CASES[name]()).text + "\n")


@pytest.mark.parametrize("name", QUANTISED_CASES)
def test_message_about_quantised(name: str, golden: Golden) -> None:
    golden(f"../golden_launch/{name}", refused(QUANTISED, QUANTISED_CASES[name]()).text + "\n")


def test_a_dimension_that_no_array_gives(golden: Golden) -> None:
    text = (
        "def f(x: tl.ptr[f32, K * 2], y: tl.out[f32, K * 2]):\n"
        "    k = tl.arange(0, 4)\n"
        "    tl.store(y[k], tl.load(x[k]))\n"
    )
    made = ir.Kernel(
        "f",
        (ir.Pointer("x", kernel().buffers[0].dtype, (("*", ("name", "K"), ("const", 2)),), "in"),),
        (), {}, frozenset(), (("const", 1),), ir.Block(), {}, "kernel.py", text,
    )  # fmt: skip
    with pytest.raises(LaunchError) as caught:
        bind(made, {"x": np.zeros(8, np.float32)})
    golden("../golden_launch/unsolved", caught.value.text + "\n")


def test_a_refused_launch_is_refused_again() -> None:
    made = kernel()
    bind(made, arguments())
    for _ in range(2):
        with pytest.raises(LaunchError, match="FER611"):
            bind(made, arguments(x=SHARED, y=SHARED))


def test_errors_travel() -> None:
    error = refused(TEXT, CASES["dtype"]())
    assert pickle.loads(pickle.dumps(error)).text == error.text


def test_findings_come_in_the_order_of_the_parameters() -> None:
    error = refused(
        TEXT,
        {"z": 1, "bits": -1, "scale": "2", "y": READ_ONLY, "w": np.zeros(7, np.float16), "x": None},
    )
    messages = [d.message for d in error.diagnostics]
    assert [m.split("`")[1::2][-1] for m in messages] == [
        "z",
        "x",
        "w",
        "y",
        "scale",
        "count",
        "bits",
    ]


def test_every_finding_names_its_argument_and_helps() -> None:
    for name in ("missing", "dtype", "out_of_range", "many_at_once"):
        for finding in refused(TEXT, CASES[name]()).diagnostics:
            assert "`" in finding.message
            assert finding.help


MIX = KernelDefinition.from_source(TEXT, "kernel.py")


def test_collect_takes_arguments_by_place_and_by_name() -> None:
    assert launch.collect(MIX, (1, 2), {"y": 3}) == {"x": 1, "w": 2, "y": 3}


def test_collect_refuses_an_argument_given_twice(golden: Golden) -> None:
    with pytest.raises(LaunchError) as caught:
        launch.collect(MIX, (1, 2), {"w": 3, "y": 4})
    golden("../golden_launch/given_twice", caught.value.text + "\n")


def test_collect_refuses_too_many(golden: Golden) -> None:
    with pytest.raises(LaunchError) as caught:
        launch.collect(MIX, (1,) * 8, {})
    golden("../golden_launch/too_many", caught.value.text + "\n")


DIVIDED = """
def f(x: tl.ptr[f32, N], y: tl.out[f32, N // G], s: tl.ptr[f32, G], n: tl.i32):
    p = tl.program_id(0, N // {divisor})
    tl.store(y[p], 1.0, mask=p < N // G)
"""


@pytest.mark.parametrize(("divisor", "size", "n"), [("G", 0, 1), ("n", 2, 0), ("(n - 1)", 2, 1)])
def test_a_size_that_divides_by_zero(divisor: str, size: int, n: int) -> None:
    kernel = KernelDefinition.from_source(DIVIDED.format(divisor=divisor), "k.py").specialise()
    x, s = np.zeros(8, np.float32), np.zeros(size, np.float32)
    y = np.zeros(8 // size if size else 1, np.float32)
    with pytest.raises(LaunchError) as caught:
        bind(kernel, {"x": x, "y": y, "s": s, "n": n})
    assert {d.code for d in caught.value.diagnostics} == {"FER615"}
    assert "divides by zero" in str(caught.value)


def test_a_misspelt_constexpr_is_told_from_an_argument() -> None:
    kernel = KernelDefinition.from_source(TEXT, "kernel.py").specialise()
    with pytest.raises(LaunchError) as caught:
        bind(kernel, {"BLOK": 64})
    (found,) = (d for d in caught.value.diagnostics if d.code == "FER601")
    assert found.help == "did you mean `BLOCK`?"
