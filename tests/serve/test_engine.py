"""The engine on a model without a device: batches, queue, cancellation, failures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from ferro.models.completion import BadRequest, Finish
from ferro.models.passes import Piece
from ferro.models.sampler import BadSampling, Sampling
from ferro.runtime.errors import DeviceLost
from ferro.runtime.watchdog import Watchdog
from ferro.serve.jobs import Ended
from ferro.serve.lanes import BROKEN, CLOSED, TIMEOUT, Busy, Closing
from tests.serve.fakes import FakeModel, Heard, engine_on, prompt, run, running, solo, task, until

SEEDED = Sampling(temperature=0.8, seed=7)


def test_a_job_is_told_its_tokens_and_its_end() -> None:
    with running(engine_on(FakeModel())) as engine:
        (heard,) = run(engine, task(prompt(1, 20)))
    assert len(heard.ids()) == 8 and heard.events[-1] == Ended(0, Finish.LENGTH)
    assert heard.text() == engine.model.tokenizer.decode(heard.ids())


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), SEEDED])
@pytest.mark.parametrize("attends", [True, False])
def test_a_text_is_the_same_alone_and_among_others(sampling: Sampling, attends: bool) -> None:
    def model() -> FakeModel:
        return FakeModel(slots=3, attends=attends)

    tasks = [task(prompt(n, 5 + 9 * n), sampling=sampling) for n in range(7)]
    with running(engine_on(model(), budget=2000)) as engine:
        many = run(engine, *tasks)
    assert [each.ids() for each in many] == [each.ids() for each in solo(model, *tasks)]


def test_streams_decode_in_one_pass() -> None:
    model = FakeModel(slots=4)
    with running(engine_on(model)) as engine:
        run(engine, *(task(prompt(n, 6), most=20) for n in range(4)))
    assert max(len(batch) for batch in model.batches) == 4


def test_a_long_prompt_is_cut_while_another_stream_decodes() -> None:
    model = FakeModel(slots=2, context=1000)
    model.seconds = 0.002
    with running(engine_on(model)) as engine:
        first, second = (
            Heard(task(prompt(n, size), most)) for n, size, most in ((1, 5, 400), (2, 900, 4))
        )
        engine.submit(first.job)
        until(lambda: len(first.ids()) > 2)
        engine.submit(second.job)
        until(lambda: second.job.over)
        first.job.cancel()
    slices = [i for i, batch in enumerate(model.batches) if len(batch[0].tokens) > 100]
    assert len(slices) == 4
    assert all(b - a > 1 for a, b in pairwise(slices)), "the other stream has its turns"


def test_waiting_jobs_have_their_turn_in_order() -> None:
    model = FakeModel(slots=1)
    with running(engine_on(model)) as engine:
        heard = run(engine, *(task(prompt(n, 4), most=3) for n in range(5)))
    ends = [each.job.clock.ended for each in heard]
    assert ends == sorted(ends) and all(len(each.ids()) == 3 for each in heard)


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.01
    with running(engine_on(model, most_waiting=2)) as engine:
        kept = [Heard(task(prompt(n, 4), most=50)) for n in range(3)]
        for each in kept:
            engine.submit(each.job)
        with pytest.raises(Busy) as caught:
            engine.submit(Heard(task(prompt(9, 4))).job)
        assert 1 <= caught.value.retry_after <= 60
        for each in kept:
            each.job.cancel()
        until(lambda: not engine.active and not engine.waiting)
        (heard,) = run(engine, task(prompt(9, 4)))
    assert len(heard.ids()) == 8 and engine.totals.refused == 1


@pytest.mark.parametrize(("size", "most"), [(120, 8), (4, 100)])
def test_a_job_that_is_given_up_leaves_its_slot(size: int, most: int) -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.005
    with running(engine_on(model)) as engine:
        heard = Heard(task(prompt(1, size), most))
        engine.submit(heard.job)
        until(lambda: engine.active)
        heard.job.cancel()
        until(lambda: not engine.active)
        passes = len(model.batches)
        assert not heard.ended
        run(engine, task(prompt(2, 4), most=1))
    assert len(model.batches) == passes + 1 and engine.totals.cancelled == 1


def test_a_job_that_waits_is_given_up_too() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.005
    with running(engine_on(model)) as engine:
        first, second = Heard(task(prompt(1, 4), 30)), Heard(task(prompt(2, 4)))
        engine.submit(first.job)
        engine.submit(second.job)
        second.job.cancel()
        until(lambda: first.job.over)
        assert not second.events and not engine.waiting


def test_a_job_that_takes_too_long_fails() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.01
    with running(engine_on(model)) as engine:
        late, waiting = run(
            engine, task(prompt(1, 4), 100, seconds=0.05), task(prompt(2, 4), 100, seconds=0.05)
        )
    for each in (late, waiting):
        assert each.failed is not None and each.failed.reason == TIMEOUT


def test_a_pass_that_fails_ends_its_jobs_and_no_more() -> None:
    model = FakeModel(slots=2)
    with running(engine_on(model)) as engine:
        model.failure = RuntimeError("lost")
        broken = run(engine, task(prompt(1, 4)), task(prompt(2, 4)))
        model.failure = None
        (after,) = run(engine, task(prompt(1, 4)))
    assert all(each.failed and each.failed.reason == BROKEN for each in broken)
    assert len(after.ids()) == 8 and not engine.active


def test_a_lost_device_is_opened_again() -> None:
    lost, whole = FakeModel(slots=2), FakeModel(slots=2)
    opened: list[int] = []

    def reopen(losses: int) -> FakeModel:
        opened.append(losses)
        return whole

    with running(engine_on(lost, budget=10_000, reopen=reopen)) as engine:
        run(engine, task(prompt(3, 40), tail=True))
        lost.failure = DeviceLost("no answer")
        (broken,) = run(engine, task(prompt(1, 4)))
        (after,) = run(engine, task(prompt(3, 40)))
    assert broken.failed and broken.failed.reason == BROKEN and opened == [1]
    assert not lost.alive and after.job.clock.cached_tokens == 0
    assert after.ids() == solo(FakeModel, task(prompt(3, 40)))[0].ids()


def test_a_device_that_does_not_answer_is_opened_again() -> None:
    class Hanging(FakeModel):
        def forward(self, pieces: Sequence[Piece]) -> Any:
            Watchdog("fake", 0.05).wait(Event())

    with running(engine_on(Hanging(), reopen=lambda losses: FakeModel())) as engine:
        (broken,) = run(engine, task(prompt(1, 4)))
        (after,) = run(engine, task(prompt(1, 4)))
    assert broken.failed and broken.failed.reason == BROKEN and "no answer" in broken.failed.message
    assert engine.losses == 1 and len(after.ids()) == 8


def test_a_device_that_does_not_open_again_is_lost_once_more() -> None:
    """The second number lets the server choose another device."""
    model, opened = FakeModel(slots=1), list[int]()

    def reopen(losses: int) -> FakeModel:
        opened.append(losses)
        if losses == 1:
            raise DeviceLost("gone")
        return FakeModel(slots=1)

    model.failure = DeviceLost("no answer")
    with running(engine_on(model, reopen=reopen)) as engine:
        run(engine, task(prompt(1, 4)))
        (after,) = run(engine, task(prompt(1, 4)))
    assert opened == [1, 2] and engine.losses == 2 and len(after.ids()) == 8


def test_a_short_prompt_need_not_wait_for_a_long_one() -> None:
    model = FakeModel(slots=3, context=2000)
    model.seconds = 0.002
    with running(engine_on(model)) as engine:
        long = Heard(task(prompt(1, 1800), 4))
        engine.submit(long.job)
        until(lambda: model.batches)
        (short,) = run(engine, task(prompt(2, 8), 1))
        assert short.ids() and not long.events
        until(lambda: long.job.over)


def test_an_engine_whose_model_cannot_be_opened_again_ends() -> None:
    def reopen(losses: int) -> FakeModel:
        raise DeviceLost("gone")

    model = FakeModel(slots=1)
    model.failure = DeviceLost("no answer")
    with running(engine_on(model, reopen=reopen)) as engine:
        run(engine, task(prompt(1, 4)))
        until(lambda: not engine.alive)
        with pytest.raises(Closing):
            engine.submit(Heard(task(prompt(2, 4))).job)


def test_a_guide_that_fails_ends_its_job_alone() -> None:
    class Broken:
        def forced(self) -> int | None:
            return None

        def allowed(self) -> None:
            raise ValueError("broken")

        def took(self, token: int) -> None: ...

    with running(engine_on(FakeModel())) as engine:
        bad, good = run(engine, task(prompt(1, 4), guide=Broken), task(prompt(2, 4)))
    assert bad.failed and bad.failed.reason == BROKEN and len(good.ids()) == 8


def test_a_guide_forces_tokens() -> None:
    class Forcing:
        def __init__(self) -> None:
            self.taken: list[int] = []

        def forced(self) -> int | None:
            return 40 if len(self.taken) < 3 else None

        def allowed(self) -> None:
            return None

        def took(self, token: int) -> None:
            self.taken.append(token)

    with running(engine_on(FakeModel())) as engine:
        (heard,) = run(engine, task(prompt(1, 4), guide=Forcing))
    assert heard.ids()[:3] == [40, 40, 40] and len(heard.ids()) == 8


def test_several_choices_fill_their_prompt_once() -> None:
    model = FakeModel(slots=2, attends=False)
    made = task(prompt(1, 30), choices=3, sampling=SEEDED)
    with running(engine_on(model)) as engine:
        (heard,) = run(engine, made)
    filled = sum(len(p.tokens) for batch in model.batches for p in batch if p.start < 30)
    assert filled == 30 and not model.alive
    assert len({tuple(heard.ids(n)) for n in range(3)}) == 3
    alone = [task(prompt(1, 30), options=made.options)]
    assert heard.ids(0) == solo(FakeModel, *alone)[0].ids()
    assert sorted(end.choice for end in heard.ended) == [0, 1, 2]


def test_the_choices_of_a_job_take_turns_with_other_jobs() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.002
    with running(engine_on(model, most_waiting=3)) as engine:
        many = Heard(task(prompt(1, 10), 4, choices=20))
        others = [Heard(task(prompt(n, 4), 4)) for n in (2, 3)]
        for each in (many, *others):
            engine.submit(each.job)
        for each in (*others, many):
            until(lambda each=each: each.job.over)  # type: ignore[misc]
    ends = [each.job.clock.ended for each in (*others, many)]
    assert ends == sorted(ends) and len(many.ended) == 20
    assert model.batches[-1] and sum(len(b[0].tokens) == 10 for b in model.batches) == 1


def test_choices_that_wait_are_one_request_of_a_full_queue() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.005
    with running(engine_on(model, most_waiting=2)) as engine:
        many = Heard(task(prompt(1, 10), 50, choices=64))
        engine.submit(many.job)
        until(lambda: engine.waiting == 63)
        engine.submit(Heard(task(prompt(2, 4))).job)
        with pytest.raises(Busy):
            engine.submit(Heard(task(prompt(3, 4))).job)
        many.job.cancel()
        until(lambda: not engine.waiting and not engine.active)


def test_choices_that_are_given_up_keep_no_copy() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.005
    with running(engine_on(model)) as engine:
        heard = Heard(task(prompt(1, 10), 30, choices=4))
        engine.submit(heard.job)
        until(lambda: heard.ids())
        heard.job.cancel()
        until(lambda: not engine.active and not engine.waiting)
    assert not model.alive


def test_no_tokens_end_every_choice() -> None:
    with running(engine_on(FakeModel())) as engine:
        (heard,) = run(engine, task(prompt(1, 10), 0, choices=3))
    assert sorted(end.choice for end in heard.ended) == [0, 1, 2] and not engine.model.batches


def test_what_cannot_be_is_refused_at_once() -> None:
    with running(engine_on(FakeModel(context=16))) as engine:
        with pytest.raises(BadRequest, match="20 tokens, the context holds 16"):
            engine.submit(Heard(task(prompt(1, 20))).job)
        with pytest.raises(BadSampling):
            bad = Sampling(logit_bias={10**6: 1.0})
            engine.submit(Heard(task(prompt(1, 4), sampling=bad)).job)


def test_after_drain_nothing_is_taken_and_what_runs_goes_on() -> None:
    model = FakeModel()
    model.seconds = 0.005
    with running(engine_on(model)) as engine:
        heard = Heard(task(prompt(1, 4), 20))
        engine.submit(heard.job)
        engine.drain()
        with pytest.raises(Closing):
            engine.submit(Heard(task(prompt(2, 4))).job)
        until(lambda: heard.job.over)
    assert len(heard.ids()) == 20


def test_close_lets_all_jobs_fail_and_ends_the_thread() -> None:
    model = FakeModel(slots=1)
    model.seconds = 0.005
    engine = engine_on(model)
    engine.start()
    heard = [Heard(task(prompt(n, 4), 100)) for n in range(3)]
    for each in heard:
        engine.submit(each.job)
    engine.close()
    assert all(each.failed and each.failed.reason == CLOSED for each in heard)
    assert not engine.alive


def test_every_shape_of_pass_is_run_before_the_first_request() -> None:
    model = FakeModel(slots=3, context=100)
    with running(engine_on(model, warm=True)) as engine:
        until(lambda: not engine.warming)
    assert [len(batch[0].tokens) for batch in model.batches] == [1, 2, 4, 8, 16, 32, 64, 96, 1, 1]
    assert [len(batch) for batch in model.batches][-2:] == [2, 3]


def test_an_idle_engine_waits_without_work() -> None:
    with running(engine_on(FakeModel())) as engine:
        run(engine, task(prompt(1, 4)))
        before = engine.totals.passes
        Event().wait(0.05)
        assert engine.totals.passes == before and engine.alive
