"""Turns of prompts, and sizes of slices."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ferro.serve.pacing import LEAST, MOST, Pacing
from ferro.serve.scheduler import Turns


@dataclass
class Prompt:
    missing: int
    until_boundary: int = 10**9

    def __post_init__(self) -> None:
        self.until_boundary = min(self.missing, self.until_boundary)


LONG, SHORT = Prompt(1600), Prompt(20)


def turns(made: Turns, filling: list[Prompt], rows: int, count: int) -> list[tuple[Prompt, int]]:
    """Who has turns, and how many tokens, while nobody gets done."""
    return [made.next(filling, rows) for _ in range(count)]


def test_a_short_prompt_goes_before_a_long_one() -> None:
    assert Turns().next([LONG, SHORT], 32) == (SHORT, 20)


def test_the_oldest_one_has_its_turn_after_as_many_tokens_of_others() -> None:
    others = [Prompt(300), Prompt(400)]
    assert turns(Turns(), [LONG, *others], 128, 4) == [(others[0], 128), (LONG, 128)] * 2
    had = turns(Turns(), [LONG, SHORT], 32, 6)
    assert had == [(SHORT, 20), (SHORT, 20), (LONG, 32)] * 2


def test_a_new_oldest_one_waits_for_as_many_tokens_again() -> None:
    made, long = Turns(), Prompt(900)
    assert turns(made, [LONG, SHORT], 32, 2) == [(SHORT, 20)] * 2
    assert turns(made, [long, SHORT], 32, 3) == [(SHORT, 20), (SHORT, 20), (long, 32)]


def test_a_prompt_alone_has_every_turn() -> None:
    assert turns(Turns(), [LONG], 128, 2) == [(LONG, 128)] * 2


def test_a_slice_ends_at_a_boundary() -> None:
    assert Turns().next([Prompt(100, until_boundary=30)], 64)[1] == 30


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


def test_a_short_slice_tells_nothing_of_long_ones() -> None:
    pacing = paced(1000)
    for _ in range(20):
        pacing.passed(5, 0.001)
    assert pacing.prefill_rate == pytest.approx(1000)


def test_rows_that_only_fill_up_a_pass_count_as_rows() -> None:
    pacing = Pacing(0.25, 0.4, 1024)
    pacing.passed(3, 0.004)
    assert pacing.prefill_rate == pytest.approx(1000)
