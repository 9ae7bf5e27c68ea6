"""Benches: a kernel beside what its device can do, in turns, without disturbed rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ferro import speed
from ferro.catalogue import find
from ferro.measure import Request
from ferro.runtime.device import Device
from ferro.runtime.devices import open_device
from ferro.speed import Round, bench, rounds, share, undisturbed

MEGABYTE = 1 << 20


@pytest.fixture
def interpreter() -> Iterator[Device]:
    with open_device("interpreter") as device:
        yield device


def test_rates_and_shares_of_what_a_kernel_does(interpreter: Device) -> None:
    norm = Request(find("rmsnorm").definition, {"M": 2, "K": 70})
    found = bench(norm, interpreter, 0.01, MEGABYTE)
    assert 0 < found.best <= found.median
    assert found.launches >= 1 and found.copies == 1
    assert set(found.rates) == set(found.limits) == set(found.shares) == {"read"}
    product = Request(find("matmul_q8").definition, {"M": 1, "N": 64, "K": 64})
    found = bench(product, interpreter, 0.01, MEGABYTE)
    assert (found.int8_operations, found.f32_operations) == (2 * 64 * 64, 0)
    assert found.rates["dot"] == 2 * 64 * 64 / found.median
    assert set(found.limits) == {"read"}  # numpy has no int8 dot to measure against


def test_a_share_is_taken_within_a_round() -> None:
    slowing = [Round([n], {"read": 100.0 / n}, 0.0) for n in (1.0, 2.0, 10.0)]
    assert share(slowing, "read", 90.0) == pytest.approx(0.9)


def test_disturbed_rounds_do_not_count() -> None:
    calm = [Round([1.0], {}, others) for others in (0.0, 0.05, 0.01)]
    busy = [Round([9.0], {}, others) for others in (0.06, 0.9)]
    assert undisturbed([busy[0], *calm, busy[1]]) == calm


def test_where_none_is_quiet_the_quietest_count() -> None:
    busy = [Round([1.0], {}, others) for others in (0.9, 0.3, 0.2, 0.5)]
    assert [one.others for one in undisturbed(busy)] == [0.2, 0.3, 0.5]
    assert undisturbed(busy[:1]) == busy[:1]


def test_what_others_do_may_be_unknown() -> None:
    unknown = [Round([1.0], {}, None)] * 2
    assert undisturbed(unknown) == unknown


def watches(monkeypatch: pytest.MonkeyPatch, others: list[float]) -> None:
    """Rounds with these shares of other programs, the last one for ever."""

    class Watch:
        def others(self) -> float:
            return others.pop(0) if len(others) > 1 else others[0]

    monkeypatch.setattr(speed, "Watch", Watch)
    monkeypatch.setattr(speed, "TURN", 0.0)


def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[float]]:
    """A launch of one second by a clock that only launches move."""
    now = [0.0]
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])

    def launch() -> list[float]:
        now[0] += 1.0
        return [1.0]

    return launch


@pytest.mark.parametrize(
    ("others", "count"),
    [([0.0], 5), ([0.9] * 6 + [0.0], 9), ([0.9], 13)],
    ids=["quiet", "busy at first", "always busy"],
)
def test_quiet_rounds_are_waited_for(
    others: list[float], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches(monkeypatch, others)
    assert len(rounds(clock(monkeypatch), {}, 4.0)) == count


def test_limits_and_kernel_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    watches(monkeypatch, [0.0])
    launch, order = clock(monkeypatch), list[str]()

    def limit() -> float:
        order.append("limit")
        return 2.0

    def kernel() -> list[float]:
        order.append("kernel")
        return launch()

    taken = rounds(kernel, {"read": limit}, 1.5)
    assert order == ["limit", "kernel"] * 2
    assert taken == [Round([1.0], {"read": 2.0}, 0.0)] * 2
