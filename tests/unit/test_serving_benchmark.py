"""How the benchmarks of serving read replies and compare servers. Serves nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import serving
from benchmarks.quiet import Sample
from benchmarks.served import Reply, Served, events, lines
from benchmarks.serving import BESIDE, IDLE, OWN, PEER, Match, Measure, described

RATE = Measure("2 streams", "tok/s", lambda served, turn: [])


def test_a_line_has_the_time_of_its_last_part() -> None:
    parts = [(0.1, b"data: {"), (0.2, b"}\n\nda"), (0.4, b'ta: {"a": 1}\n')]
    found = list(lines(parts))
    assert found == [(0.2, b"data: {}"), (0.2, b""), (0.4, b'data: {"a": 1}')]
    assert list(events(line for _, line in found)) == [{}, {"a": 1}]


def test_text_counts_when_it_comes_and_tokens_as_the_server_counts_them() -> None:
    reply = Reply(200)
    reply.hear({"choices": [{"delta": {"role": "assistant"}}]}, 0.1)
    reply.hear({"choices": [{"text": "a"}]}, 0.2)
    reply.hear({"choices": [{"delta": {"content": "b"}}]}, 0.5)
    reply.hear({"choices": [{"text": ""}], "timings": {"predicted_n": 3}}, 0.6)
    assert (reply.text, reply.times, reply.tokens) == ("ab", [0.2, 0.5], 3)
    assert reply.stall == pytest.approx(0.3)


@pytest.fixture
def match(monkeypatch: pytest.MonkeyPatch) -> Match:
    servers = {name: SimpleNamespace(process=SimpleNamespace(pid=1)) for name in (OWN, PEER)}
    monkeypatch.setattr(serving, "MEASURES", (RATE, IDLE, BESIDE))
    return Match(cast("dict[str, Served]", servers))


def test_rates_and_waits_are_compared_round_by_round(match: Match) -> None:
    for own, other in ((20.0, 10.0), (40.0, 10.0), (90.0, 30.0)):
        match.rounds[RATE].append({OWN: Sample([own], 0.0), PEER: Sample([other], 0.01)})
    match.rounds[IDLE] = [{OWN: Sample([0.02, 0.01, 0.03], 0.0), PEER: Sample([0.1], 0.0)}]
    assert match.times_as_fast(RATE) == 3.0
    assert match.times_as_fast(IDLE) == pytest.approx(5.0)
    assert match.others(RATE) == 0.01


def test_waiting_is_measured_by_that_of_an_idle_server(match: Match) -> None:
    match.rounds[IDLE] = [{OWN: Sample([0.01], 0.0), PEER: Sample([0.1], 0.0)}]
    match.rounds[BESIDE] = [{OWN: Sample([0.02, 0.03, 0.09], 0.0), PEER: Sample([1.0], 0.0)}]
    assert match.waits(OWN) == pytest.approx(3.0)
    assert match.waits(PEER) == pytest.approx(10.0)


def test_a_round_in_which_one_server_was_disturbed_does_not_count(
    match: Match, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([0.0, 0.5, 0.0, 0.0, 0.01, 0.02])

    def quietly(work: Callable[[], Any], beside: Any) -> Sample[Any]:
        return Sample([1.0], next(shares))

    monkeypatch.setattr(serving, "quietly", quietly)
    match.round(0)
    assert [len(match.rounds[measure]) for measure in (RATE, IDLE, BESIDE)] == [0, 1, 1]
    assert [line[1] for line in match.lines()][:2] == ["disturbed", "1000 (1000, 1) ms"]


def test_the_worst_rate_is_the_least_and_the_worst_wait_the_longest() -> None:
    assert described([30.0, 10.0, 20.0], RATE) == "20 (10, 3) tok/s"
    assert described([0.03, 0.01, 0.02], IDLE) == "20 (30, 3) ms"
