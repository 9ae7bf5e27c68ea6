"""Packed passes of an encoder: shared among requests, fair to short and long ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.models.packing import Input
from ferro.runtime.errors import DeviceLost, OutOfMemory
from ferro.serve.encoder_lane import EncoderLane
from ferro.serve.engine import Engine
from ferro.serve.jobs import Encoding, Job
from ferro.serve.lanes import BROKEN, CLOSED, NUMBERS, TIMEOUT, Busy, Closing, Gate
from ferro.serve.pacing import Pacing
from ferro.serve.prefixes import Prefixes
from ferro.serve.shares import Shares
from ferro.serve.stream_lane import StreamLane
from tests.serve.fake_encoder import FakeEncoder, HeardEncoding, encoder_engine
from tests.serve.fakes import Alone, FakeModel, Heard, prompt, running, task, until


def run(engine: Alone, *heard: HeardEncoding) -> None:
    """All at once, to their ends."""
    for each in heard:
        engine.submit(each.job)
    until(lambda: all(each.job.over for each in heard))


def by_hand(model: FakeEncoder, *heard: HeardEncoding) -> EncoderLane:
    """A lane with jobs, whose passes the test makes."""
    lane = EncoderLane(Gate(), model, 64)
    for each in heard:
        lane.submit(each.job)
    return lane


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=9), min_size=1, max_size=6))
def test_every_input_has_its_own_rows_in_any_company(lengths: list[list[int]]) -> None:
    heard = [HeardEncoding(each, seed) for seed, each in enumerate(lengths)]
    lane = by_hand(FakeEncoder(), *heard)
    while lane.ready:
        lane.step(lane.ready[-1])
    assert all(each.right for each in heard) and not lane.waiting
    assert lane.totals.inputs == sum(map(len, lengths))


def test_requests_share_passes() -> None:
    model = FakeEncoder(batch=16)
    lane = by_hand(model, *(HeardEncoding([4], seed) for seed in range(4)))
    lane.step("packed")
    assert len(model.passes_made) == 1 and not lane.ready


def test_a_request_of_many_inputs_leaves_room_for_others() -> None:
    model = FakeEncoder(batch=16)
    many, one = HeardEncoding([4] * 100), HeardEncoding([4], 50)
    lane = by_hand(model, many, one)
    lane.step("packed")
    assert one.job.over and not many.job.over


def test_an_input_longer_than_a_batch_is_work_of_its_own() -> None:
    model = FakeEncoder(batch=16)
    lane = by_hand(model, HeardEncoding([40, 3, 30], 1), HeardEncoding([50], 2))
    assert list(lane.ready) == ["packed", "long"]
    for _ in range(6):
        lane.step("long")
    assert [len(each) for (each,) in model.passes_made] == [30, 50]


def test_a_long_pass_rests_while_others_have_their_turn() -> None:
    model = FakeEncoder(batch=16)
    long, short = HeardEncoding([40], 1), HeardEncoding([4], 2)
    lane = by_hand(model, long, short)
    lane.step("long")
    lane.step("packed")
    assert short.right and not long.events
    lane.step("long")
    lane.step("long")
    assert long.right and not lane.ready


def test_a_long_pass_that_is_given_up_goes_no_further() -> None:
    model = FakeEncoder(batch=16)
    gone, other = HeardEncoding([40], 1), HeardEncoding([30], 2)
    lane = by_hand(model, gone, other)
    lane.step("long")
    gone.job.cancel()
    lane.sweep()
    for _ in range(3):
        lane.step("long")
    assert other.right and not gone.events and len(model.passes_made) == 1


def test_inputs_with_several_wanted_rows_have_all_of_them() -> None:
    class Rows(FakeEncoder):
        def forward(self, inputs: object) -> object:
            return np.arange(5, dtype=np.float32)

    events: list[object] = []
    inputs = (Input((1, 2), wanted=(0,)), Input((1, 2, 3), wanted=(0, 2)), Input((4,), (0, 0)))
    job = Job(Encoding(inputs), events.append)
    lane = EncoderLane(Gate(), Rows(), 64)
    lane.submit(job)
    lane.step("packed")
    (encoded,) = events
    assert sorted(map(len, encoded.rows)) == [1, 2, 2]  # type: ignore[attr-defined]


def test_a_full_queue_refuses() -> None:
    lane = EncoderLane(Gate(), FakeEncoder(), most_waiting=1)
    for _ in range(2):
        lane.submit(HeardEncoding([3]).job)
    with pytest.raises(Busy) as caught:
        lane.submit(HeardEncoding([3]).job)
    assert 1 <= caught.value.retry_after <= 60 and lane.totals.refused == 1


def test_a_job_that_is_given_up_or_late_is_computed_no_further() -> None:
    gone, late = HeardEncoding([3] * 50), HeardEncoding([3] * 50, seconds=0.0)
    model = FakeEncoder()
    lane = by_hand(model, gone, late)
    lane.step("packed")
    gone.job.cancel()
    lane.sweep()
    assert not lane.ready and not gone.events and lane.totals.cancelled == 1
    assert late.failed is not None and late.failed.reason == TIMEOUT


def test_a_pass_that_fails_ends_its_own_jobs_only() -> None:
    model = FakeEncoder(batch=16)
    long, short = HeardEncoding([40]), HeardEncoding([4])
    lane = by_hand(model, long, short)
    model.failure = OutOfMemory("too long")
    for _ in range(3):
        lane.step("long")
    model.failure = None
    lane.step("packed")
    assert long.failed is not None and long.failed.reason == BROKEN and short.right


def test_rows_that_are_no_numbers_fail() -> None:
    class Broken(FakeEncoder):
        def forward(self, inputs: object) -> object:
            return np.full((1, 8), np.nan, np.float32)

    heard = HeardEncoding([4])
    by_hand(Broken(), heard).step("packed")
    assert heard.failed is not None and heard.failed.reason == NUMBERS


def test_a_lost_device_ends_the_jobs_and_is_opened_again() -> None:
    lost, whole = FakeEncoder(), FakeEncoder()
    lost.failure = DeviceLost("no answer")
    reopen = {"embedding": whole}
    with running(encoder_engine(lost, reopen=lambda losses: reopen)) as engine:
        broken, after = HeardEncoding([4]), HeardEncoding([5])
        run(engine, broken)
        run(engine, after)
    assert broken.failed is not None and broken.failed.reason == BROKEN
    assert after.right and whole.passes_made and engine.losses == 1


def test_at_the_end_jobs_fail_and_no_more_are_taken() -> None:
    model = FakeEncoder()
    model.seconds = 0.01
    engine = encoder_engine(model)
    engine.start()
    heard = HeardEncoding([10] * 1000)
    engine.submit(heard.job)
    engine.drain()
    with pytest.raises(Closing):
        engine.submit(HeardEncoding([3]).job)
    engine.close()
    assert heard.failed is not None and heard.failed.reason == CLOSED


def test_streams_and_passes_have_their_share_of_the_device() -> None:
    gate, language, encoder = Gate(), FakeModel(context=2000), FakeEncoder()
    language.seconds, encoder.seconds = 0.002, 0.008
    streams = StreamLane(gate, language, Pacing(0.25, 0.4, 1024), Prefixes(language, 0), 64)
    passes = EncoderLane(gate, encoder, 64)
    stream, many = Heard(task(prompt(1, 4), most=1500)), HeardEncoding([16] * 50)
    streams.submit(stream.job)
    passes.submit(many.job)
    engine = Engine(gate, [streams, passes])
    engine.start()
    until(lambda: many.job.over)
    tokens = len(stream.ids())
    engine.close()
    # fifty passes take as long as two hundred tokens; a busy machine sleeps longer, for both
    assert 60 < tokens < 600 and many.right


def test_what_comes_later_has_no_arrears() -> None:
    shares = Shares()
    for _ in range(100):
        assert shares.next(["a"]) == "a"
        shares.took("a", 1.0)
    turns = []
    for _ in range(6):
        turns.append(shares.next(["a", "b"]))
        shares.took(turns[-1], 1.0)
    assert turns[0] == "b" and turns.count("a") == turns.count("b")


def test_a_long_turn_is_made_up_for() -> None:
    shares = Shares()
    shares.next(["long", "short"])
    shares.took("long", 5.0)
    turns = []
    for _ in range(6):
        turns.append(shares.next(["long", "short"]))
        shares.took(turns[-1], 1.0)
    assert turns[:5] == ["short"] * 5


def test_an_encoder_warms_up_between_requests() -> None:
    model = FakeEncoder(batch=64)
    model.seconds = 0.01
    engine = encoder_engine(model, warm=True)
    with running(engine):
        assert not engine.warming
        heard = HeardEncoding([3], 1)
        run(engine, heard)
        asked = [len(each) for (each, *_) in model.passes_made].index(3)
        until(lambda: len(model.passes_made) == 10)
    assert heard.right and asked < 5
