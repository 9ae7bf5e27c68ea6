"""Turns of prompts, and sizes of slices."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ferro.serve.pacing import LEAST, MOST, Pacing
from ferro.serve.scheduler import share


@dataclass
class Prompt:
    missing: int
    until_boundary: int = 10**9

    def __post_init__(self) -> None:
        self.until_boundary = min(self.missing, self.until_boundary)


LONG, SHORT = Prompt(1600), Prompt(20)


def test_a_short_prompt_goes_first_and_the_rest_is_the_long_one_s() -> None:
    assert share([LONG, SHORT], 128) == [(SHORT, 20), (LONG, 108)]


def test_half_of_the_rows_are_the_oldest_one_s() -> None:
    others = [Prompt(300), Prompt(400)]
    assert share([LONG, *others], 128) == [(others[0], 64), (LONG, 64)]
    assert share([SHORT, *others], 128) == [(SHORT, 20), (others[0], 108)]


def test_a_prompt_alone_has_all() -> None:
    assert share([LONG], 128) == [(LONG, 128)]


def test_a_slice_ends_at_a_boundary() -> None:
    assert share([Prompt(100, until_boundary=30)], 64)[0][1] == 30


def test_no_rows_are_no_slices() -> None:
    assert share([LONG], 0) == []


def paced(rate: float, share: float = 0.4) -> Pacing:
    """Pacing that has seen prompts filled at ``rate`` tokens a second."""
    made = Pacing(0.25, share, 1024)
    made.passed(128, 128 / rate)
    return made


@pytest.mark.parametrize(("rate", "rows"), [(100, LEAST), (500, 96), (512, 128), (10**6, MOST)])
def test_slices_fit_the_time(rate: float, rows: int) -> None:
    assert paced(rate).rows == rows


def test_an_unknown_rate_is_no_obstacle() -> None:
    assert Pacing(0.25, 0.4, 1024).rows == MOST


def test_a_slice_is_never_larger_than_a_pass() -> None:
    assert Pacing(0.25, 0.4, 50).rows == 50


def test_after_a_slice_the_decoding_streams_have_their_share() -> None:
    pacing = paced(1000, share=0.5)
    pacing.passed(98, 0.1)
    passes = 0
    while pacing.owes:
        pacing.passed(0, 0.02)
        passes += 1
    assert passes == 5


def test_rates_follow_what_is_measured() -> None:
    pacing = paced(100)
    for _ in range(20):
        pacing.passed(96, 0.096)
    assert pacing.prefill_rate == pytest.approx(1000, rel=0.02)


def test_rows_that_only_fill_up_a_pass_count_as_rows() -> None:
    pacing = Pacing(0.25, 0.4, 1024)
    pacing.passed(3, 0.032)
    assert pacing.prefill_rate == pytest.approx(1000)
