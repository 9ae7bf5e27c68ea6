"""A row's logits are the same bits however passes are cut, batched and scheduled, everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferro.codegen.program import Config
from ferro.models.language_model import LanguageModel
from ferro.models.passes import Piece
from ferro.runtime import open_device
from ferro.runtime.device import Device
from tests.models import tiny
from tests.stacks import FULL, Stack, open_stack, quick_stack, quickest_stack, stack

__all__ = ["quick_stack", "quickest_stack", "stack"]

CONTEXT, SLOTS = 96, 3
IDS = tuple(np.random.default_rng(5).integers(0, 512, 90).tolist())
OTHER = tuple(np.random.default_rng(6).integers(0, 512, 90).tolist())
SHORT = 11
FORMS = [("q8", "f16"), ("q8", "int8"), ("q4", "f16"), ("f32", "f32")]
FEW = FORMS if FULL else FORMS[:1]
EXAMPLES = 40 if FULL else 5


def opened(device: Device, name: str, weights: str, cache: str, **how: Any) -> LanguageModel:
    path = tiny.path(name, {"q4": "q4_1", "q8": "q8_0", "f32": "f32"}[weights])
    return LanguageModel.open(
        path, device, weights=weights, cache=cache, context=CONTEXT, slots=SLOTS, **how
    )


def whole(model: LanguageModel, ids: Sequence[int], slot: int = 0) -> Any:
    return model.forward([Piece(slot, 0, tuple(ids), len(ids))])


def sliced(model: LanguageModel, ids: Sequence[int], ends: Sequence[int], slot: int = 0) -> Any:
    """The logits of all rows, filled in slices that end at ``ends``."""
    rows, start = [], 0
    for end in ends:
        rows.append(model.forward([Piece(slot, start, tuple(ids[start:end]), end - start)]))
        start = end
    return np.concatenate(rows)


def same(a: Any, b: Any) -> bool:
    return bool(a.tobytes() == b.tobytes() and np.isfinite(a).all())


@lru_cache(maxsize=None)
def on_the_interpreter(name: str, weights: str, cache: str) -> Any:
    with open_device("interpreter") as device, opened(device, name, weights, cache) as model:
        return whole(model, IDS[:SHORT])


@lru_cache(maxsize=None)
def quick(name: str, weights: str, cache: str) -> tuple[LanguageModel, Any]:
    """A model that stays open on a device with a quick compiler, and its logits of ``IDS``."""
    found = open_stack("intel-simd")
    model = opened(found.device, name, weights, cache, target=found.target)
    return model, whole(model, IDS)


@contextmanager
def any_config(device: Device, seed: int) -> Iterator[None]:
    """Schedules that nobody tuned: every constexpr at any of its choices."""
    before, chosen = device.chooser, random.Random(seed)

    def choose(kernel: Any, sizes: Any, target: Any) -> Config:
        schedule = kernel.schedule
        names = {name: kernel.parameters[name].choices for name in sorted(schedule)}
        return Config({name: chosen.choice(sorted(values)) for name, values in names.items()})

    device.chooser = choose
    try:
        yield
    finally:
        device.chooser = before


@contextmanager
def split_or_grouped(device: Device, split: int, group: int) -> Iterator[None]:
    """Walks are split between work-groups, or programs that share weights stand together."""
    before = device.chooser

    def choose(kernel: Any, sizes: Any, target: Any) -> Config:
        walks = kernel.name.startswith(("matmul", "attention"))
        shares = kernel.name.startswith("matmul") and split == 1
        return Config({}, split=split if walks else 1, group=group if shares else 0)

    device.chooser = choose
    try:
        yield
    finally:
        device.chooser = before


# --- one device ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "cache"), FORMS)
@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.usefixtures("quick_stack")
def test_any_way_to_cut_a_prompt(name: str, weights: str, cache: str) -> None:
    model, wanted = quick(name, weights, cache)

    @settings(max_examples=EXAMPLES)
    @given(st.sets(st.integers(1, len(IDS) - 1), max_size=8), st.integers(0, SLOTS - 1))
    def check(cuts: set[int], slot: int) -> None:
        assert same(sliced(model, IDS, [*sorted(cuts), len(IDS)], slot), wanted)

    check()


@pytest.mark.parametrize(("weights", "cache"), FEW)
@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.usefixtures("quick_stack")
def test_any_company_in_a_batch(name: str, weights: str, cache: str) -> None:
    model, wanted = quick(name, weights, cache)
    other = whole(model, OTHER, 1)

    @settings(max_examples=EXAMPLES)
    @given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6))
    def check(steps: list[tuple[int, int]]) -> None:
        """Two sequences grow by so many tokens in each pass, a third begins anew each time."""
        at, rows = [0, 0], ([], [])
        for step in [*steps, (len(IDS), len(OTHER))]:
            pieces, kept = [Piece(2, 0, OTHER[5:8], 1)], []
            for slot, ids in enumerate((IDS, OTHER)):
                end = min(at[slot] + step[slot], len(ids))
                if end > at[slot]:
                    n = end - at[slot]
                    pieces.append(Piece(slot, at[slot], ids[at[slot] : end], n))
                    kept.append((slot, n))
                at[slot] = end
            found = model.forward(pieces)[1:]
            for slot, n in kept:
                rows[slot].append(found[:n])
                found = found[n:]
        assert same(np.concatenate(rows[0]), wanted)
        assert same(np.concatenate(rows[1]), other)

    check()


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.usefixtures("quick_stack")
def test_one_token_at_a_time(name: str) -> None:
    model, wanted = quick(name, "q8", "f16")
    assert same(sliced(model, IDS, range(1, len(IDS) + 1)), wanted)


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.usefixtures("quick_stack")
def test_wanting_fewer_rows_changes_none(name: str) -> None:
    model, wanted = quick(name, "q8", "f16")
    assert model.forward([Piece(0, 0, IDS[:40], 0)]).shape == (0, 512)
    assert same(model.forward([Piece(0, 40, IDS[40:], 3)]), wanted[-3:])


@pytest.mark.parametrize(("weights", "cache"), FEW)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_any_config(name: str, weights: str, cache: str, quick_stack: Stack) -> None:
    _, wanted = quick(name, weights, cache)
    device, target = quick_stack.device, quick_stack.target
    for seed in range(8 if FULL else 1):
        with (
            any_config(device, seed),
            opened(device, name, weights, cache, target=target) as model,
        ):
            assert same(sliced(model, IDS, (33, len(IDS))), wanted)


@pytest.mark.parametrize(("split", "group"), [(4, 0), (1, 8)])
@pytest.mark.parametrize("name", tiny.NAMES)
def test_split_walks_and_grouped_programs(
    name: str, split: int, group: int, quickest_stack: Stack
) -> None:
    _, wanted = quick(name, "q8", "f16")
    device, target = quickest_stack.device, quickest_stack.target
    with (
        split_or_grouped(device, split, group),
        opened(device, name, "q8", "f16", target=target) as model,
    ):
        assert same(sliced(model, IDS, (33, len(IDS))), wanted)


# --- all devices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "cache"), FORMS)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_slices_on_the_interpreter(name: str, weights: str, cache: str) -> None:
    wanted = on_the_interpreter(name, weights, cache)
    with open_device("interpreter") as device, opened(device, name, weights, cache) as model:
        assert same(sliced(model, IDS[:SHORT], (4, 5, SHORT), slot=2), wanted)


@pytest.mark.parametrize(("weights", "cache"), FORMS)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_a_quick_device_gives_the_bits_of_the_interpreter(
    name: str, weights: str, cache: str, quick_stack: Stack
) -> None:
    check_against_the_interpreter(name, weights, cache, quick_stack)


@pytest.mark.parametrize(("weights", "cache"), FEW)
@pytest.mark.parametrize("name", tiny.NAMES)
def test_every_device_gives_the_bits_of_the_interpreter(
    name: str, weights: str, cache: str, stack: Stack
) -> None:
    check_against_the_interpreter(name, weights, cache, stack)


def check_against_the_interpreter(name: str, weights: str, cache: str, stack: Stack) -> None:
    wanted = on_the_interpreter(name, weights, cache)
    with opened(stack.device, name, weights, cache, target=stack.target) as model:
        assert same(sliced(model, IDS[:SHORT], (8, SHORT)), wanted)
