"""Made-up arguments fit the declaration they are made for."""

from __future__ import annotations

import numpy as np
import pytest

from ferro import arguments
from ferro.arguments import ArgumentsError, TooLarge
from ferro.dsl import extents, ir
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import LaunchError, bind
from ferro.dsl.quantised import A8, Q8
from ferro.dsl.types import TileType, f16, f32, i8, i32


def scalar(name: str, dtype=i32, lo=None, hi=None, implicit=False) -> ir.Scalar:
    return ir.Scalar(name, ir.Value(TileType(dtype), name), lo, hi, implicit)


def kernel() -> ir.Kernel:
    m, k = extents.name("M"), extents.name("K")
    return ir.Kernel(
        name="every_kind",
        buffers=(
            ir.Pointer("x", f32, (m, k), "in"),
            ir.Pointer("h", f16, (k,), "in"),
            ir.Pointer("b", i8, (k,), "in"),
            ir.Pointer("starts", i32, (("+", m, extents.const(1)),), "in"),
            ir.Pointer("sum", f32, (m,), "inout"),
            ir.Pointer("y", f32, (m, k), "out"),
            ir.Quantised("w", "q8", m, k),
            ir.Quantised("a", "a8", m, k),
            ir.Quantised("z", "a8", m, k, "out"),
        ),
        scalars=(
            scalar("M", implicit=True),
            scalar("K", implicit=True),
            scalar("eps", f32),
            scalar("count", lo=0, hi=10),
        ),
        constants={},
        schedule=frozenset(),
        grid=(m,),
        body=ir.Block(),
        functions={},
        file="",
        source="",
    )


def test_they_bind() -> None:
    made = arguments.make(kernel(), {"M": 3, "K": 40})
    binding = bind(kernel(), made)
    assert binding.grid == (3,)
    assert binding.extents["x"] == (3, 40)
    assert isinstance(made["w"], Q8) and made["w"].shape == (3, 40)
    assert isinstance(made["a"], A8) and not made["a"].q[:, 40:].any()


def test_contents() -> None:
    made = arguments.make(kernel(), {"M": 4, "K": 33})
    assert made["x"].min() < 0 < made["x"].max() and np.abs(made["x"]).max() <= 1
    assert made["starts"].tolist() == [0, 8, 16, 24, 33]
    assert not made["y"].any() and not made["z"].q.any()
    assert made["sum"].any()
    assert made["count"] == 10


def test_seed_decides_and_streams_are_separate() -> None:
    one, same = (arguments.make(kernel(), {"M": 4, "K": 32}, seed=5) for _ in range(2))
    other = arguments.make(kernel(), {"M": 4, "K": 32}, seed=6)
    assert arguments.differing(one["w"], same["w"]) == 0
    assert arguments.differing(one["x"], other["x"]) > 100
    assert arguments.differing(one["x"].ravel()[:4], one["sum"]) > 0


def test_values_can_be_given() -> None:
    made = arguments.make(kernel(), {"M": 3}, {"starts": [0, 7], "eps": [1e-5], "count": [2]})
    assert made["starts"].tolist() == [0, 7, 0, 7]
    assert (made["eps"], made["count"]) == (1e-5, 2)
    assert made["x"].shape == (3, arguments.LARGEST_DEFAULT)


@pytest.mark.parametrize(("axes", "size"), [(1, 256), (2, 256), (3, 64), (4, 16), (5, 8)])
def test_default_dimensions_of_many_axes_are_small(axes: int, size: int) -> None:
    names = tuple(extents.name(letter) for letter in "ABCDE"[:axes])
    made = ir.Kernel(
        name="copy",
        buffers=(ir.Pointer("x", f32, names, "in"), ir.Pointer("y", f32, names, "out")),
        scalars=tuple(scalar(n, implicit=True) for n in "ABCDE"[:axes]),
        constants={},
        schedule=frozenset(),
        grid=(extents.const(1),),
        body=ir.Block(),
        functions={},
        file="",
        source="",
    )
    assert set(arguments.dimensions(made, {}).values()) == {size}
    assert 2 * size**axes <= arguments.MOST_ELEMENTS
    given = arguments.dimensions(made, {"A": 1000})
    assert list(given.values()) == [1000] + [size] * (axes - 1)


@pytest.mark.parametrize(
    ("sizes", "values", "message"),
    [
        ({"Q": 1}, {}, "no dimension `Q` \\(there are: M, K\\)"),
        ({"M": -1}, {}, "negative"),
        ({}, {"eps": [1, 2]}, "`eps` is one number"),
        ({}, {"w": [1]}, "no argument `w`"),
    ],
)
def test_wrong_requests(sizes: dict, values: dict, message: str) -> None:
    with pytest.raises(ArgumentsError, match=message):
        arguments.make(kernel(), sizes, values)


def test_copy_shares_nothing() -> None:
    made = arguments.make(kernel(), {"M": 2, "K": 32})
    copied = arguments.copy(made)
    copied["x"][:] = 0
    copied["z"].q[:] = 1
    assert made["x"].any() and not made["z"].q.any()


def test_differing_looks_at_bits() -> None:
    a = np.array([0.0, 1.0, np.nan, np.inf], np.float32)
    b = np.array([-0.0, 1.0, -np.nan, np.inf], np.float32)
    assert arguments.differing(a, b) == 1
    assert arguments.differing(np.array([1, 2], np.int8), np.array([1, 3], np.int8)) == 1
    with pytest.raises(ValueError, match="cannot be compared"):
        arguments.differing(a, b[:2])


def test_traffic_counts_both_directions() -> None:
    made = arguments.make(kernel(), {"M": 2, "K": 32})
    read = sum(made[b.name].nbytes for b in kernel().buffers)
    assert arguments.traffic(kernel(), made) == read + made["sum"].nbytes
    assert arguments.written(kernel()) == ["sum", "y", "z"]


SUMMED = """
def f(x: tl.ptr[f32, M, N], y: tl.out[f32, M], n: tl.i32):
    row = tl.program_id(0, M)
    k = tl.arange(0, 64)
    tl.store(y[row], tl.max(tl.load(x[row, k * n], mask=k * n < N, other=0.0)), mask=row < M)
"""


@pytest.mark.parametrize(
    ("sizes", "n", "code"),
    [
        ({"M": 10**9, "N": 10**9}, 1, "FER613"),
        ({"M": 1, "N": 10**30}, 1, "FER613"),
        ({"M": 8, "N": 8}, 2 * 10**9, "FER702"),
    ],
)
def test_sizes_of_no_launch_are_refused_before_anything_is_allocated(
    sizes: dict[str, int], n: int, code: str
) -> None:
    made = KernelDefinition.from_source(SUMMED, "k.py").specialise()
    with pytest.raises(LaunchError) as caught:
        arguments.make(made, sizes, {"n": [n]})
    assert code in {d.code for d in caught.value.diagnostics}


def test_arguments_larger_than_the_memory_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 12)  # a page, and as many pages: 16 MiB
    arguments.make(kernel(), {"M": 3, "K": 40})
    with pytest.raises(TooLarge) as caught:
        arguments.make(kernel(), {"M": 3000, "K": 4000})
    assert caught.value.exit_code == 3
    assert "choose smaller dimensions" in str(caught.value)
