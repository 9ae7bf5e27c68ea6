"""Stop strings, whatever the pieces in which a text comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.stops import StopStrings

TEXTS = st.text("ab\n", max_size=24)


def shown(stops: StopStrings, pieces: list[str]) -> list[str]:
    found = [stops.push(piece) for piece in pieces]
    return found if stops.found else [*found, stops.finish()]


def test_without_strings_everything_passes_at_once() -> None:
    assert shown(StopStrings(()), ["a", "", "b"]) == ["a", "", "b", ""]


def test_nothing_of_a_stop_string_is_shown() -> None:
    stops = StopStrings(["User:"])
    assert shown(stops, ["Hi\nUs", "er", ": more"]) == ["Hi\n", "", ""]
    assert stops.found == "User:"


def test_what_turns_out_to_be_none_is_shown_late() -> None:
    assert shown(StopStrings(["User:"]), ["Us", "eful"]) == ["", "Useful", ""]


def test_a_beginning_at_the_end_of_the_text_is_shown() -> None:
    assert shown(StopStrings(["\n\n"]), ["x\n"]) == ["x", "\n"]


def test_the_string_that_is_complete_first_counts() -> None:
    stops = StopStrings(["abc", "b"])
    assert "".join(shown(stops, ["xabc"])) == "xa" and stops.found == "b"


def test_of_strings_that_end_together_the_longest_counts() -> None:
    stops = StopStrings(["c", "abc", "bc"])
    assert "".join(shown(stops, ["xabc"])) == "x" and stops.found == "abc"


def test_an_empty_string_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopStrings(["x", ""])


@given(TEXTS, st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3), st.data())
def test_the_pieces_do_not_matter(text: str, strings: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    one, many = StopStrings(strings), StopStrings(strings)
    assert "".join(shown(one, [text])) == "".join(shown(many, pieces))
    assert one.found == many.found


@given(TEXTS, st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3))
def test_only_what_may_become_a_stop_string_is_held_back(text: str, strings: list[str]) -> None:
    stops = StopStrings(strings)
    out = "".join(stops.push(c) for c in text)
    held = text[len(out) :]
    if not stops.found:
        assert not held or any(s.startswith(held) and s != held for s in strings)
        assert not any(s in text for s in strings)
