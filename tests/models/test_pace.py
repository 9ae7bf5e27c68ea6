"""Samples of a model's speed, and the check of its text."""

from __future__ import annotations

import pytest

from ferro.models.pace import TEXT, TEXT_TOKENS, Measurement, Pace, Sample
from tests.models.fakes import FakeModel


def test_median_and_spread() -> None:
    samples = [Sample(1.0, rate, None) for rate in (90.0, 100.0, 110.0)]
    found = Measurement("prefill", 8, samples=samples).to_json()
    assert (found["median"], found["spread"]) == (100.0, 0.2)


def test_every_kind_is_sampled_as_often_as_asked() -> None:
    pace = Pace(FakeModel())
    told: list[str] = []
    found = pace.run([8, 20], [(4, 0), (4, 30)], 3, told.append)
    assert told == ["prefill", "prefill", "decode", "decode"] * 4
    assert [(m.kind, m.tokens, m.depth) for m in found] == [
        ("prefill", 8, 0),
        ("prefill", 20, 0),
        ("decode", 4, 0),
        ("decode", 4, 30),
    ]
    for measurement in found:
        assert len(measurement.samples) == 3
        for sample in measurement.samples:
            assert sample.rate == measurement.tokens / sample.seconds > 0


def test_prefill_begins_with_nothing_and_decode_after_its_depth() -> None:
    model = FakeModel()
    Pace(model).run([8], [(4, 30)], 1)
    shapes = [(piece.start, len(piece.tokens)) for piece in model.passes]
    assert shapes[:6] == [(0, 8), (0, 30), (30, 1), (31, 1), (32, 1), (33, 1)]


def test_the_text_is_the_greedy_one_in_every_repetition() -> None:
    model = FakeModel()
    pace = Pace(model)
    pace.run([8], [], 2)
    check = pace.check()
    assert check.same and check.prompt == TEXT and len(check.ids) == TEXT_TOKENS
    assert check.text == model.tokenizer.decode(check.ids)
    prompt = model.tokenizer.encode(TEXT)
    assert check.ids[1] == int(model._logits([*prompt, check.ids[0]]).argmax())


def test_a_text_that_differs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(FakeModel(script=range(500)))
    pace.run([8], [], 1)
    assert not pace.check().same
