"""The prefix cache: what is kept, what is found, what is pushed out."""

from __future__ import annotations

from ferro.serve.jobs import Task
from ferro.serve.prefixes import Prefixes
from tests.serve.fakes import FakeModel, prompt, task

SYSTEM = prompt(1, 30)
LONG = prompt(9, 100)


def filled(cache: Prefixes, made: Task, slot: int = 0) -> int:
    """Serve a task's prompt as the engine does; how much of it was found."""
    ends = cache.boundaries(made)
    found = cache.restore(made, slot)
    for end in ends:
        if end > found:
            cache.store.held[slot] = list(made.prompt[:end])
            cache.keep(made, end, slot)
    return found


def cache_of(budget: int = 10_000, attends: bool = False) -> Prefixes:
    return Prefixes(FakeModel(attends=attends), budget)


def said(*more: int, **how: object) -> Task:
    return task([*SYSTEM, *more], **how)


def test_a_system_message_is_found_again() -> None:
    cache = cache_of()
    assert filled(cache, said(1, 2, boundaries=(30,))) == 0
    assert filled(cache, said(3, 4, boundaries=(30,))) == 30
    assert len(cache) == 1 and cache.nbytes == 300


def test_what_two_prompts_share_is_kept_for_the_third() -> None:
    cache = cache_of()
    assert [filled(cache, said(n, n + 1)) for n in range(3)] == [0, 0, 30]


def test_the_last_token_is_never_restored() -> None:
    cache = cache_of()
    assert [filled(cache, task(SYSTEM)) for _ in range(3)] == [0, 0, 29]
    rewinding = cache_of(attends=True)
    filled(rewinding, task(SYSTEM, tail=True))
    assert filled(rewinding, task(SYSTEM, tail=True)) == 29


def test_a_part_is_restored_where_there_are_no_convolutions() -> None:
    for attends, found in ((True, 30), (False, 0)):
        cache = cache_of(attends=attends)
        filled(cache, said(*prompt(2, 20), tail=True))
        assert filled(cache, said(*prompt(3, 20))) == found


def test_a_tail_replaces_the_one_that_it_goes_on_from() -> None:
    cache = cache_of()
    first = said(*prompt(2, 10), tail=True)
    filled(cache, first)
    second = task([*first.prompt, *prompt(3, 10)], tail=True)
    assert filled(cache, second) == len(first.prompt)
    assert len(cache) == 1 and cache.nbytes == 10 * len(second.prompt)


def test_the_least_recently_used_goes_first() -> None:
    cache = cache_of(budget=700)
    one, two, three = (task([*prompt(n, 25), 1, 2], boundaries=(25,)) for n in (1, 2, 3))
    again = task([*prompt(1, 25), 3, 4], boundaries=(25,))
    for made in (one, two, again, three):
        filled(cache, made)
    assert cache.nbytes <= 700 and cache.counts.evicted == 1
    assert [cache.restore(made, 0) for made in (one, two, three)] == [25, 0, 25]


def test_a_tail_pushes_out_no_system_message() -> None:
    cache = cache_of(budget=400)
    filled(cache, said(1, boundaries=(30,)))
    filled(cache, task(LONG, tail=True))
    assert cache.counts.skipped == 1 and filled(cache, said(2, boundaries=(30,))) == 30


def test_tails_have_a_quarter_of_the_budget() -> None:
    cache = cache_of(budget=2000)
    for n in range(6):
        filled(cache, task(prompt(n, 24), tail=True))
    assert cache.nbytes <= 500


def test_what_is_short_or_too_large_is_not_kept() -> None:
    cache = cache_of(budget=500)
    filled(cache, task(LONG, boundaries=(10, 90)))
    assert len(cache) == 0 and cache.counts.skipped == 1


def test_nothing_is_kept_where_that_is_not_wanted() -> None:
    for cache, how in ((cache_of(0), {}), (cache_of(), {"cached": False})):
        for n in range(3):
            assert filled(cache, said(n, boundaries=(30,), **how)) == 0
        assert len(cache) == 0 and cache.counts.queries == 0


def test_all_memory_comes_back() -> None:
    cache = cache_of()
    for n in range(5):
        filled(cache, task(prompt(n, 30), boundaries=(25,), tail=True))
    cache.clear()
    assert not cache.store.alive and cache.nbytes == 0
