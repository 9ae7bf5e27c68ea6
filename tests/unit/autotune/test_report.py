"""The report: one page that holds everything, with a chart for each place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from autotune.candidates import Skipped
from autotune.report import SLOWEST, WIDTH, Untried, bar, gained, page
from ferro.codegen.program import Config
from ferro.runtime.trials import Trial, Trials


def trial(block: int, outcome: str = "timed", relative: float = 1.0, reason: str = "") -> Trial:
    return Trial(
        kernel="norms.<rmsnorm>",
        target="simd-16",
        sizes={"M": 3},
        config=Config({"BLOCK": block}),
        program="p",
        outcome=outcome,
        reason=reason,
        seconds=relative / 1e3,
        relative=relative,
        spread=0.1,
        launches=9,
        is_default=block == 64,
    )


def trials(*found: Trial) -> Trials:
    kept = Trials(Path("none"), "a device & its driver")
    for one in found:
        kept.add(one)
    return kept


def test_page_shows_times_winner_failures_and_what_was_not_tried() -> None:
    kept = trials(
        trial(64),
        trial(16, relative=0.5),
        trial(32, "lost", 0.0, "it died"),
        trial(128, "lost", 0.0, "it died"),
        trial(256, "wrong", 0.0, "3 elements differ"),
    )
    (place,) = kept.places()
    skipped = (Skipped(Config(), "tile too large: BLOCK=512"),) * 2
    text = page(kept, {place: Untried(skipped)})
    assert "Launches take <b>BLOCK=16</b>" in text
    assert "0.5 ms, 0.50" in text
    assert "lost: it died (2): BLOCK=32; BLOCK=128" in text
    assert "wrong: 3 elements differ (1): BLOCK=256" in text
    assert "2 tile too large" in text
    assert "a device &amp; its driver" in text and "norms.&lt;rmsnorm&gt;" in text


def test_what_was_gained_is_told_in_all() -> None:
    winners = [trial(16, relative=ratio) for ratio in (1.0, 0.5, 0.25)]
    told = gained([*winners, None])
    assert told == (
        "3 launches, 2 of them faster than by their default: 3.00 times in the middle, "
        "4.00 at most; together 0.50 of the defaults' times (geometric mean)"
    )
    assert gained([]) == gained([None]) == ""


def test_page_names_what_the_budget_left_and_times_of_an_earlier_program() -> None:
    kept = trials(trial(64), trial(16, relative=0.5))
    (place,) = kept.places()
    left = (Config({"BLOCK": 16}), Config({"BLOCK": 512}))
    text = page(kept, {place: Untried(left=left)})
    assert "for another run (2): BLOCK=16; BLOCK=512" in text
    assert text.count("(of an earlier program)") == 1
    assert "0.5 ms, 0.50 (of an earlier program)" in text


def test_page_of_a_run_has_no_kernel_of_another_run() -> None:
    kept = trials(trial(64), replace(trial(64), kernel="other.kernel"))
    mine = next(place for place in kept.places() if place.kernel != "other.kernel")
    assert "other.kernel" not in page(kept, {mine: Untried()})
    assert "other.kernel" in page(kept, {})


def test_page_needs_nothing_else_and_its_charts_are_sound() -> None:
    text = page(trials(trial(64), trial(16, relative=0.5), trial(32, relative=9.0)), {})
    assert not any(word in text for word in ("http", "src=", "<script", "<link", "@import"))
    chart = text[text.index("<svg") : text.index("</svg>") + 6]
    rects = [e for e in ElementTree.fromstring(chart).iter() if e.tag.endswith("rect")]
    lengths = [float(rect.attrib["width"]) for rect in rects]
    assert lengths == sorted(lengths) and max(lengths) == WIDTH
    assert "(cut)" in chart


def test_bars_are_cut_at_the_slowest() -> None:
    assert bar(trial(16, relative=2.0), SLOWEST, False).length == WIDTH / 2
    long = bar(trial(16, relative=99.0), SLOWEST, False)
    assert long.length == long.high == WIDTH and long.cut


def test_a_place_without_times_and_no_place_at_all() -> None:
    assert "No config works" in page(trials(trial(16, "failed", 0.0, "why")), {})
    assert "Nothing has been tuned yet" in page(trials(), {})
