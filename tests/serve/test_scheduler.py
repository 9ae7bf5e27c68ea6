"""Turns of prompts, and sizes of slices."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ferro.serve.pacing import ALONE, Pacing
from ferro.serve.scheduler import Turns


@dataclass
class Prompt:
    missing: int
    until_boundary: int = 10**9

    def __post_init__(self) -> None:
        self.until_boundary = min(self.missing, self.until_boundary)


LONG, SHORT = Prompt(1600), Prompt(20)


def test_a_short_prompt_goes_first_and_the_rest_is_the_long_one_s() -> None:
    assert Turns().share([LONG, SHORT], 128) == [(SHORT, 20), (LONG, 108)]


def test_every_second_pass_begins_with_the_oldest() -> None:
    turns = Turns()
    first, second = (turns.share([LONG, Prompt(300)], 128)[0][0].missing for _ in range(2))
    assert (first, second) == (300, 1600)


def test_a_slice_ends_at_a_boundary() -> None:
    assert Turns().share([Prompt(100, until_boundary=30)], 64)[0][1] == 30


def test_no_rows_are_no_slices() -> None:
    assert Turns().share([LONG], 0) == []


def paced(rate: float, share: float = 0.4) -> Pacing:
    """Pacing that has seen prompts filled at ``rate`` tokens a second."""
    made = Pacing(0.25, share, 1024)
    made.passed(128, 128 / rate)
    return made


@pytest.mark.parametrize(("rate", "rows"), [(100, 32), (500, 96), (512, 128), (10**6, ALONE)])
def test_slices_beside_others_fit_the_time(rate: float, rows: int) -> None:
    assert paced(rate).rows(False, contended=True) == rows


def test_a_prompt_alone_has_large_passes() -> None:
    assert paced(100).rows(False, contended=False) == ALONE


def test_an_unknown_rate_is_no_obstacle() -> None:
    assert Pacing(0.25, 0.4, 1024).rows(True, contended=True) == ALONE


def test_a_pass_is_never_larger_than_a_model_takes() -> None:
    assert Pacing(0.25, 0.4, 64).rows(False, contended=False) == 64


def test_after_a_slice_the_decoding_streams_have_their_share() -> None:
    pacing = paced(1000, share=0.5)
    pacing.passed(98, 0.1)
    passes = 0
    while not pacing.rows(True, contended=True):
        pacing.passed(0, 0.02)
        passes += 1
    assert passes == 5


def test_nobody_is_owed_time_who_does_not_decode() -> None:
    assert paced(1000).rows(False, contended=True) > 0


def test_rates_follow_what_is_measured() -> None:
    pacing = paced(100)
    for _ in range(20):
        pacing.passed(96, 0.096)
    assert pacing.prefill_rate == pytest.approx(1000, rel=0.02)


def test_rows_that_only_fill_up_a_pass_count_as_rows() -> None:
    pacing = Pacing(0.25, 0.4, 1024)
    pacing.passed(3, 0.032)
    assert pacing.prefill_rate == pytest.approx(1000)
