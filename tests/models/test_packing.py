"""Which inputs share a pass, what a pass uploads, how many shapes there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models import packing
from ferro.models.packing import Input, Shape, packed, rounded
from ferro.models.passes import ContextFull, PassError


@given(st.lists(st.integers(1, 200), max_size=60), st.integers(1, 128))
def test_every_input_is_in_one_pass_that_is_not_too_large(lengths: list[int], rows: int) -> None:
    found = packed(lengths, rows)
    assert sorted(i for numbers in found for i in numbers) == list(range(len(lengths)))
    for numbers in found:
        assert len(numbers) == 1 or sum(lengths[i] for i in numbers) <= rows
    # no two passes could have been one
    sums = sorted(sum(lengths[i] for i in numbers) for numbers in found)
    assert len(sums) < 2 or sums[0] + sums[1] > rows


def test_long_inputs_go_alone_and_gaps_are_filled() -> None:
    assert packed([5, 700, 300, 212, 300], 512) == [[1], [2, 0], [4, 3]]
    assert packed([], 512) == []


def test_a_huge_batch_takes_no_longer() -> None:
    assert packed([5, 3], 10**15) == [[0, 1]]


@given(st.integers(1, 10000))
def test_few_rows_are_added(rows: int) -> None:
    found = rounded(rows)
    assert rows <= found == rounded(found)
    assert found < 2 * rows if rows <= 32 else found - rows < max(32, rows / 8)


def test_few_shapes_exist() -> None:
    assert len({rounded(n) for n in range(1, 513)}) == 21
    assert len({rounded(n) for n in range(1, 8193)}) == 21 + 4 * 8


def test_what_a_pass_uploads() -> None:
    inputs = [Input((5, 6, 7), (0, 2), 1), Input((8,), (0,)), Input((9, 4))]
    shape = Shape.of(inputs)
    assert shape == Shape(rows=8, inputs=4, wanted=4, longest=4)
    found = packing.numbers(inputs, shape)
    assert found["tokens"].tolist() == [5, 6, 7, 8, 9, 4, -1, -1]
    assert found["positions"].tolist() == [0, 1, 2, 0, 0, 1, -1, -1]
    assert found["rows"].tolist() == [0, 1, 2, 3, 4, 5, -1, -1]
    assert found["kinds"].tolist() == [1, 1, 1, 0, 0, 0, -1, -1]
    assert found["starts"].tolist() == [0, 3, 4, 6, 6]
    assert found["keys"].tolist() == [[0, 3], [3, 1], [4, 2], [6, 0]]
    assert found["wanted"].tolist() == [0, 2, 3, -1]
    assert found["rest"].size == 0
    assert {array.dtype for array in found.values()} == {np.dtype(np.int32)}


def test_what_a_pass_of_one_input_uploads_besides() -> None:
    inputs = [Input((5,) * 150)]
    found = packing.numbers(inputs, Shape.of(inputs))["rest"]
    assert found[:, :2].tolist() == [[0, 150], [0, 86], [0, 22]] and not found[:, 2:].any()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (Input(()), PassError, "input 1 has no tokens"),
        (Input((1,) * 9), ContextFull, r"input 1 is too long: 9 tokens \(at most 8\)"),
        (Input((1, 40)), PassError, r"input 1: there is no token 40 \(there are 40\)"),
        (Input((-1,)), PassError, "there is no token -1"),
        (Input((1, 2.5)), PassError, "input 1: a token is a whole number, not a float"),
        (Input(("a",)), PassError, "not a str"),
        (Input(tuple(np.array([1, 2**64 - 1], np.uint64))), PassError, "no token 18446744073709"),
        (Input((1, 2), (2,)), PassError, r"input 1: rows \[2\] of 2 are wanted"),
    ],
)
def test_inputs_that_cannot_be(given: Input, error: type[PassError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        packing.check([Input((1,)), given], vocabulary=40, most=8)
    assert caught.value.exit_code == 2
