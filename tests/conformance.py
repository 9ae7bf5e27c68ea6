"""What every kernel is held to: ``TestX = conformance(Case(...))`` makes the tests of one kernel.

The interpreter is compared with an independent reference within rounding, and every OpenCL stack
with the interpreter in every bit: over drawn shapes, over shapes that are always tried, and over
all schedules. Shapes are runtime arguments, so an example never rebuilds a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ferro.codegen.program import Config
from ferro.dsl.ir import walk
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.runtime import open_device
from tests.stacks import FULL, Stack

EXAMPLES = 30 if FULL else 6

Sizes = Mapping[str, int]
Arguments = dict[str, Any]

_profile = settings(
    max_examples=EXAMPLES,
    derandomize=not FULL,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
UNNAMED = re.compile(r"axis\d+_\d+")  # labels of index tiles that have no name


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel, how to make arguments for given sizes, and what must come out.

    ``arguments(draw, **sizes)`` gives all arguments but meaning constants; ``expected(arguments)``
    maps written arrays to float64 or integer references (a pair (q, scale) for an A8).
    ``full`` holds further sizes for the full matrix. ``wild`` allows NaN, infinities and
    subnormals in float inputs, where bits are compared and not the reference. ``short`` tells
    sizes whose loops turn few times (see ``Stack.endless``).
    """

    kernel: KernelDefinition
    sizes: Mapping[str, st.SearchStrategy[int]]
    arguments: Callable[..., Arguments]
    expected: Callable[[Arguments], Mapping[str, Any]]
    always: Sequence[Sizes] = ()
    full: Sequence[Sizes] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    rtol: float = 2e-6
    atol: float = 1e-6
    wild: bool = True
    short: Callable[[Sizes], bool] = lambda sizes: True

    @property
    def fixed(self) -> Sequence[Sizes]:
        return [*self.always, *self.full] if FULL else self.always

    def fitting(self, stack: Stack, sizes: Sequence[Sizes]) -> Sequence[Sizes]:
        """Those of ``sizes`` that a stack can run; skips the test where no fixed ones are."""
        if stack.endless:
            return sizes
        if not any(map(self.short, self.fixed)):
            pytest.skip(f"{stack.name} leaves the loops of this kernel early")
        return [s for s in sizes if self.short(s)]

    def choices(self) -> list[Config]:
        """Every choice of every schedule constexpr and each named lane axis, one at a time."""
        choices = [
            Config({name: choice})
            for name, parameter in self.kernel.schedule.items()
            for choice in parameter.choices
            if choice != parameter.default
        ]
        body = self.kernel.specialise(**self.constants).body
        labels = {op.attrs["axis"] for op in walk(body) if op.name == "arange"}
        labels = {label for label in labels if not UNNAMED.fullmatch(label)}
        axes = [Config(lane_axis=(label,)) for label in sorted(labels) if len(labels) > 1]
        return [*choices, *axes]


class Draw:
    """Random inputs for one example."""

    def __init__(self, seed: int, wild: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.wild = wild

    def f32(self, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
        x = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        return self._sprinkle(x, _WILD) if self.wild else x

    def f16(self, *shape: int) -> NDArray[np.float16]:
        x = self.rng.standard_normal(shape).astype(np.float16)
        return self._sprinkle(x, _WILD) if self.wild else x

    def positive(self, *shape: int) -> NDArray[np.float32]:
        return (self.rng.random(shape) + 0.5).astype(np.float32)

    def i32(self, lo: int, hi: int, *shape: int) -> NDArray[np.int32]:
        """Integers lo..hi, both included."""
        return self.rng.integers(lo, hi, shape, np.int32, endpoint=True)

    def q8(self, rows: int, cols: int) -> Q8:
        """Weights over the whole int8 range, -128 included, with zero and small scales."""
        q = self.rng.integers(-128, 127, (rows, -(-cols // 32) * 32), np.int8, endpoint=True)
        q[self.rng.random(q.shape) < 0.02] = -128
        q[:, cols:] = 0
        scale = self.rng.random((rows, q.shape[1] // 32)).astype(np.float16) / np.float16(64)
        scale[self.rng.random(scale.shape) < 0.05] = 0
        return Q8(q, scale, cols)

    def q4(self, rows: int, cols: int) -> Q4:
        """Weights of 0..15 with zero and small scales and minima of both signs."""
        q = self.rng.integers(0, 15, (rows, -(-cols // 32) * 32), np.int8, endpoint=True)
        q[:, cols:] = 0
        scale, low = (self.rng.random((rows, q.shape[1] // 32)) / 16 for _ in range(2))
        scale[self.rng.random(scale.shape) < 0.05] = 0
        return Q4(q, scale.astype(np.float16), (0.02 - low).astype(np.float16), cols)

    def a8(self, rows: int, cols: int) -> A8:
        q = self.rng.integers(-127, 127, (rows, -(-cols // 32) * 32), np.int8, endpoint=True)
        q[self.rng.random(q.shape) < 0.02] = 127
        q[:, cols:] = 0
        scale = (self.rng.random((rows, q.shape[1] // 32)) / 64).astype(np.float32)
        return A8(q, scale, cols)

    def packed(self, sequences: int, longest: int) -> NDArray[np.int32]:
        """Starts of packed sequences of 0..longest rows; at least one is the longest."""
        counts = self.i32(0, longest, sequences)
        if sequences:
            counts[self.rng.integers(sequences)] = longest
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    def _sprinkle(self, x: NDArray[Any], values: Sequence[float]) -> NDArray[Any]:
        with np.errstate(over="ignore", under="ignore"):
            odd = self.rng.choice(np.array(values), x.shape).astype(x.dtype)
        return np.where(self.rng.random(x.shape) < 0.05, odd, x)


def binades(count: int, seed: int = 0) -> NDArray[np.float32]:
    """``count`` numbers of each sign from every binade, subnormals included."""
    rng = np.random.default_rng(seed)
    exponent = np.repeat(np.arange(255, dtype=np.uint32), count)
    mantissa = rng.integers(0, 2**23, exponent.size, dtype=np.uint32)
    mantissa[::count], mantissa[1::count] = 0, 2**23 - 1
    bits = exponent << 23 | mantissa
    return np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)


_WILD = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-45, 2.0**-126, 3e38, -3e38, 88.0, -104.0)


# All sizes of one case, so that its stacks share them: at most about a GB for the largest one.
@lru_cache(maxsize=256 if FULL else 64)
def _interpreted(
    case: Case, sizes: tuple[tuple[str, int], ...], seed: int, wild: bool
) -> Arguments:
    """Arguments after the interpreter has run ``case``; shared, so never to be written."""
    arguments = case.arguments(Draw(seed, wild), **dict(sizes))
    open_device("interpreter").run(case.kernel, **case.constants, **arguments)
    return arguments


def compare(
    case: Case,
    run: Callable[..., None],
    sizes: Sizes,
    seed: int,
    wild: bool,
    config: Config | None = None,
) -> None:
    """Holds what ``run`` makes of a case to the interpreter's bits."""
    key = tuple(sorted(sizes.items()))
    want = _interpreted(case, key, seed, wild)
    got = case.arguments(Draw(seed, wild), **sizes)
    run(case.kernel, config=config, **case.constants, **got)
    for name, value in want.items():
        what = f"{name} for {dict(sizes)}, seed {seed}, {config}"
        assert_same_bits(got[name], value, what, getattr(run, "exact", True))


def assert_same_bits(got: Any, want: Any, what: str, exact: bool = True) -> None:
    """Equal in every bit, NaN equal to NaN; arrays, quantised matrices and numbers.

    Of a device that is not exact (llvmpipe's fma loses signs of zeros) one zero may be the other.
    """
    if isinstance(want, (A8, Q4, Q8)):
        assert_same_bits(got.q, want.q, f"{what}: values", exact)
        assert_same_bits(got.scale, want.scale, f"{what}: scales", exact)
        return
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind == "f":
        unsigned = np.dtype(f"u{want.dtype.itemsize}")
        wrong = (got.view(unsigned) != want.view(unsigned)) & ~(np.isnan(got) & np.isnan(want))
        wrong &= exact | (got != 0) | (want != 0)
    else:
        wrong = got != want
    if wrong.any():
        at = tuple(int(i[0]) for i in np.nonzero(wrong))
        count = f"{int(wrong.sum())} of {wrong.size}"
        raise AssertionError(f"{what}: {count} differ, first {at}: {got[at]!r}, not {want[at]!r}")


def _assert_close(case: Case, sizes: Sizes, seed: int) -> None:
    result = _interpreted(case, tuple(sorted(sizes.items())), seed, False)
    before = case.arguments(Draw(seed), **sizes)
    for name, want in case.expected(before).items():
        got = result[name]
        where = f"{name} for {dict(sizes)}, seed {seed}"
        if isinstance(got, A8):
            _assert_close_a8(got, want, where)
        elif got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, case.rtol, case.atol, err_msg=where)
        else:
            np.testing.assert_array_equal(got, want, err_msg=where)


def _assert_close_a8(got: A8, want: tuple[Any, Any], where: str) -> None:
    # a value next to a rounding border may go either way when the reference is float64
    q, scale = want
    np.testing.assert_allclose(got.scale, scale, 1e-5, 1e-30, err_msg=where)
    distance = np.abs(got.q.astype(np.int32) - q)
    assert distance.max(initial=0) <= 1, where
    assert (distance > 0).mean() < 0.01 if distance.size > 1000 else True, where


def conformance(
    case: Case, schedules: Sequence[Config] | None = (), turn: tuple[int, int] = (0, 1)
) -> type:
    """The test class of one case. ``schedules`` are tried besides the choices of its schedule
    constexprs; None leaves schedules to another case of the same kernel. Cases of one kernel that
    differ in little share them: ``turn`` (2, 5) takes every fifth one, from the one at 2 on."""
    tested = case
    drawn = st.fixed_dictionaries(dict(case.sizes))
    seeds = st.integers(0, 2**16)
    wild = st.booleans() if case.wild else st.just(False)
    configs = () if schedules is None else (*schedules, *case.choices())[turn[0] :: turn[1]]

    class Tests:
        case = tested
        pytestmark = pytest.mark.timeout(3600 if FULL else 120)

        @_profile
        @given(sizes=drawn, seed=seeds)
        def test_reference(self, sizes: Sizes, seed: int) -> None:
            _assert_close(case, sizes, seed)

        def test_reference_always(self) -> None:
            for sizes in case.fixed:
                _assert_close(case, sizes, 1)

        @_profile
        @given(sizes=drawn, seed=seeds, wild=wild)
        def test_order_of_programs(self, sizes: Sizes, seed: int, wild: bool) -> None:
            device = open_device("interpreter")

            def shuffled(kernel: KernelDefinition, config: Any, **arguments: Any) -> None:
                device.run(kernel, config, order="one_by_one", seed=seed, **arguments)

            compare(case, shuffled, sizes, seed, wild)

        @pytest.mark.device
        @_profile
        @given(sizes=drawn, seed=seeds, wild=wild)
        def test_bits(self, stack: Stack, sizes: Sizes, seed: int, wild: bool) -> None:
            if sizes in case.fitting(stack, [sizes]):
                compare(case, stack, sizes, seed, wild and stack.exact)

        @pytest.mark.device
        def test_bits_always(self, stack: Stack) -> None:
            for sizes in case.fitting(stack, case.fixed):
                compare(case, stack, sizes, 1, False)

        if configs:

            @pytest.mark.device
            def test_schedules(self, tuned_stack: Stack) -> None:
                for config in tuned_stack.share(configs):
                    compare(case, tuned_stack, case.always[0], 2, case.wild, config)

    return Tests
