"""What a pass uploads, how many shapes there are, and pieces that make no pass."""

from __future__ import annotations

import numpy as np
import pytest

from ferro.models import passes
from ferro.models.passes import PassError, Piece, Shape, rounded
from ferro.runtime import open_device

CONTEXT = 100
MIXED = (Piece(1, 0, (5, 6, 7), 1), Piece(0, 40, (8,), 1), Piece(3, 2, (9, 10), 0))


def test_rows_are_numbered_by_position_and_place_in_the_cache() -> None:
    found = passes.numbers(MIXED, Shape.of(MIXED), CONTEXT)
    assert found["tokens"].tolist() == [5, 6, 7, 8, 9, 10, -1, -1]
    assert found["positions"].tolist() == [0, 1, 2, 40, 2, 3, -1, -1]
    assert found["rows"].tolist() == [100, 101, 102, 40, 302, 303, -1, -1]
    assert found["starts"].tolist() == [0, 3, 4, 6]
    assert found["keys"].tolist() == [[100, 3], [0, 41], [300, 4]]
    assert found["slots"].tolist() == [1, 0, 3]


def test_wanted_rows_are_the_last_of_each_piece() -> None:
    found = passes.numbers(MIXED, Shape.of(MIXED), CONTEXT)
    assert found["wanted"].tolist() == [2, 3]
    pieces = (Piece(0, 0, (1, 2, 3), 3), Piece(1, 0, (1, 2, 3), 2))
    found = passes.numbers(pieces, Shape.of(pieces), CONTEXT)
    assert found["wanted"].tolist() == [0, 1, 2, 4, 5, -1, -1, -1]


def test_a_pass_without_wanted_rows() -> None:
    pieces = (Piece(0, 0, (1, 2), 0),)
    assert Shape.of(pieces).wanted == 0
    assert passes.numbers(pieces, Shape.of(pieces), CONTEXT)["wanted"].size == 0


def test_what_is_uploaded_is_what_kernels_read() -> None:
    with open_device("interpreter") as device:
        inputs = passes.upload(device, Shape.of(MIXED))
        for context in (CONTEXT, 7):  # the second write leaves nothing of the first
            wanted = passes.numbers(MIXED, Shape.of(MIXED), context)
            inputs.write(wanted)
            for name, values in wanted.items():
                found = inputs[name].read()
                assert found.dtype == np.int32 and np.array_equal(found, values)


def test_few_shapes_exist() -> None:
    assert [rounded(n) for n in (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65)] == [
        *(0, 1, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 96)
    ]
    shapes = {Shape.of((Piece(0, 0, (1,) * n),)) for n in range(1, 257)}
    assert len(shapes) == 5 + 8


def test_steps_of_many_streams_have_one_row_each() -> None:
    shape = Shape.of([Piece(i, 10 + i, (1,)) for i in range(3)])
    assert (shape.rows, shape.pieces, shape.wanted, shape.longest) == (4, 3, 4, 1)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((), "a pass without pieces"),
        ((Piece(0, 0, ()),), "a piece without tokens"),
        ((Piece(0, -1, (1,)),), "starts at position -1"),
        ((Piece(0, 0, (1, 40)),), r"there is no token 40 \(there are 40\)"),
        ((Piece(0, 0, (-1,)),), "there is no token -1"),
        ((Piece(0, 0, (1,), 2),), "logits of 2 rows are wanted of 1 tokens"),
        ((Piece(0, 0, (1,), -1),), "logits of -1 rows"),
        ((Piece(2, 0, (1,)), Piece(0, 0, (1,)), Piece(2, 1, (1,))), "two pieces .* in slot 2"),
        ((Piece(0, 0, (1,) * 9), Piece(1, 0, (1,) * 8)), r"17 tokens in one pass \(at most 16\)"),
    ],
)
def test_pieces_that_make_no_pass(pieces: tuple[Piece, ...], said: str) -> None:
    with pytest.raises(PassError, match=said) as caught:
        passes.check(pieces, vocabulary=40, most=16)
    assert caught.value.exit_code == 2


def test_pieces_that_make_a_pass() -> None:
    passes.check(MIXED, vocabulary=11, most=6)
