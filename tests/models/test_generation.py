"""One stream on a model: slices, what a slot holds, timings."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.completion import BadRequest, Finish, Options
from ferro.models.generation import Generation, Stream
from ferro.models.language_model import LanguageModel
from ferro.models.sampler import Sampling
from tests.models.fakes import FakeModel

GREEDY = Options(Sampling(temperature=0), most=8, ignore_ends=True)
PROMPT = list(range(40, 60))


def ran(
    model: FakeModel, prompt: list[int], options: Options = GREEDY, **kwargs: int
) -> Generation:
    made = Stream(model, **kwargs).complete(prompt, options)
    assert "".join(made) == model.tokenizer.decode(made.completion.ids)
    return made


def test_a_prompt_is_filled_in_slices_and_only_its_end_is_wanted() -> None:
    model = FakeModel()
    ran(model, PROMPT, size=8)
    starts = [(piece.start, len(piece.tokens), piece.wanted) for piece in model.passes]
    assert starts[:3] == [(0, 8, 0), (8, 8, 0), (16, 4, 1)]
    assert starts[3:] == [(n, 1, 1) for n in range(20, 27)]


def test_no_two_slices_are_under_way_at_once() -> None:
    model = FakeModel()
    Stream(model, size=8).fill(PROMPT)
    assert model.finished == [1, 2]


def test_the_last_token_is_not_computed() -> None:
    model = FakeModel()
    made = ran(model, PROMPT)
    assert model.held[0] == [*PROMPT, *made.completion.ids[:-1]]


@given(st.integers(1, 30))
def test_the_size_of_a_slice_changes_no_token(size: int) -> None:
    assert (
        ran(FakeModel(), PROMPT, size=size).completion.ids
        == ran(FakeModel(), PROMPT).completion.ids
    )


def test_a_sampled_text_is_the_same_again() -> None:
    options = Options(Sampling(seed=3), most=16)
    first, second = (ran(FakeModel(), PROMPT, options).completion.ids for _ in range(2))
    assert first == second


@pytest.mark.parametrize("attends", [True, False])
def test_a_prompt_that_goes_on_from_the_slot_is_not_computed_again(attends: bool) -> None:
    model = FakeModel(attends=attends)
    stream = Stream(model)
    first = stream.complete(PROMPT, GREEDY)
    "".join(first)
    longer = [*PROMPT, *first.completion.ids, 7, 8]
    second = stream.complete(longer, GREEDY)
    done = len(model.passes)
    "".join(second)
    assert model.passes[done].start == second.timings.cached_tokens == len(PROMPT) + 7
    assert second.completion.ids == ran(FakeModel(), longer).completion.ids


@pytest.mark.parametrize(("attends", "kept"), [(True, 12), (False, 0)])
def test_another_prompt_keeps_what_it_shares_unless_there_are_convolutions(
    attends: bool, kept: int
) -> None:
    model = FakeModel(attends=attends)
    stream = Stream(model)
    "".join(stream.complete(PROMPT, GREEDY))
    other = [*PROMPT[:12], 1, 2, 3]
    made = stream.complete(other, GREEDY)
    "".join(made)
    assert made.timings.cached_tokens == kept
    assert made.completion.ids == ran(FakeModel(), other).completion.ids


def test_the_same_prompt_computes_its_last_token_again() -> None:
    model = FakeModel()
    stream = Stream(model)
    first = stream.fill(PROMPT)
    assert stream.reusable(PROMPT) == len(PROMPT) - 1
    assert np.array_equal(stream.fill(PROMPT), first)
    assert model.passes[-1].start == len(PROMPT) - 1


def test_after_a_pass_that_failed_all_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    stream = Stream(model)
    stream.fill(PROMPT)
    with monkeypatch.context() as patched:
        patched.setattr(model, "forward", lambda pieces: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.extend([1])
    assert stream.reusable([*PROMPT, 1]) == 0


def test_all_rows_in_slices() -> None:
    model = FakeModel()
    rows = list(Stream(model, size=8).rows(PROMPT))
    assert [len(each) for each in rows] == [8, 8, 4]
    assert np.array_equal(
        np.concatenate(rows), np.concatenate(list(Stream(FakeModel()).rows(PROMPT)))
    )


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_computed() -> None:
    model = FakeModel(context=10)
    with pytest.raises(BadRequest, match="20 tokens, the context holds 10"):
        Stream(model).complete(PROMPT, GREEDY)
    assert model.passes == []


def test_the_context_is_never_passed() -> None:
    made = ran(FakeModel(context=24), PROMPT, Options(Sampling(temperature=0), ignore_ends=True))
    assert made.completion.finish is Finish.CONTEXT and len(made.completion.ids) == 5


def test_no_tokens_take_no_pass() -> None:
    model = FakeModel()
    made = ran(model, PROMPT, Options(most=0))
    assert model.passes == [] and made.timings.tokens == 0


def test_timings_count_tokens_and_seconds() -> None:
    timings = ran(FakeModel(), PROMPT).timings
    assert (timings.prompt_tokens, timings.tokens) == (20, 8)
    assert timings.first_token_seconds > 0 and timings.decode_seconds > 0
    assert timings.decode_rate == 7 / timings.decode_seconds
    assert timings.to_json()["prefill_tokens_per_second"] == 20 / timings.first_token_seconds


def test_the_reader_s_time_is_not_the_model_s() -> None:
    made = Stream(FakeModel()).complete(PROMPT, GREEDY)
    clock = iter(range(10**6))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "perf_counter", lambda: next(clock))
        for _ in made:
            next(clock)
    assert made.timings.decode_seconds == 7


def test_the_example_of_the_docs_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "generate.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    monkeypatch.setenv("FERRO_DEVICE", "interpreter")
    monkeypatch.setattr(LanguageModel, "open", lambda path, device: FakeModel())
    exec(example, {})
    assert "Finish." in capsys.readouterr().out
