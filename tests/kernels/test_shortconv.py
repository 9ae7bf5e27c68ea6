from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ferro.dsl.quantised import A8
from kernels_src.shortconv import (
    shortconv,
    shortconv_a8,
    shortconv_centred,
    shortconv_centred_a8,
)
from tests import reference
from tests.conformance import Arguments, Case, Draw, assert_same_bits, conformance
from tests.reference import Array, f64
from tests.stacks import Stack

SIZES = {
    "b": st.integers(0, 4),
    "longest": st.integers(0, 9),
    "spare": st.integers(0, 3),
    "d": st.integers(1, 100),
}
ALWAYS = [
    {"b": 3, "longest": 5, "spare": 2, "d": 70},
    {"b": 4, "longest": 1, "spare": 0, "d": 64},
    {"b": 1, "longest": 40, "spare": 0, "d": 1},
]
FULL = [{"b": 2, "longest": 200, "spare": 30, "d": 1024}]


def packed(
    draw: Draw, b: int, longest: int, spare: int, d: int, taps: int, continued: bool
) -> Arguments:
    """Sequences that begin anew or continue, and ``spare`` rows of none."""
    starts = draw.packed(b, longest)
    positions = np.full(int(starts[-1]) + spare, -1, np.int32)
    for begin, end in pairwise(starts):
        first = draw.i32(0, 4) if continued else 0
        positions[begin:end] = first + np.arange(end - begin)
    return {
        "bcx": draw.f32(len(positions), 3 * d),
        "w": draw.f32(d, taps),
        "starts": starts,
        "positions": positions,
        "y": draw.f32(len(positions), d),
    }


def arguments(draw: Draw, taps: int, **sizes: int) -> Arguments:
    b = sizes["b"]
    slots = draw.rng.permutation(b + 2)[:b].astype(np.int32)
    state = draw.f32(b + 2, taps - 1, sizes["d"])
    return {**packed(draw, **sizes, taps=taps, continued=True), "slots": slots, "state": state}


def gated(a: Arguments) -> tuple[Array, Array]:
    """B * X and C [T, D]."""
    b, c, x = np.split(f64(a["bcx"]), 3, axis=1)
    return b * x, c


def causal(a: Arguments) -> dict[str, Array]:
    bx, c = gated(a)
    y, state = f64(a["y"]).copy(), f64(a["state"]).copy()
    back = state.shape[1]
    for s, slot in enumerate(a["slots"]):
        rows = slice(a["starts"][s], a["starts"][s + 1])
        count = rows.stop - rows.start
        if not count:
            continue
        held = np.concatenate([state[slot], bx[rows]])
        # what is held reaches back to position 0 only
        held[: max(0, back - a["positions"][rows.start])] = 0
        conv = sum(held[tap : tap + count] * a["w"][:, tap] for tap in range(back + 1))
        y[rows] = c[rows] * conv
        state[slot] = held[count:]
    return {"y": y, "state": state}


def two_sided(a: Arguments) -> dict[str, Array]:
    bx, c = gated(a)
    y = f64(a["y"]).copy()
    taps = a["w"].shape[1]
    for begin, end in pairwise(a["starts"]):
        for t in range(begin, end):
            first = min(begin, max(t - a["positions"][t], 0)) if "positions" in a else begin
            rows = t + np.arange(taps) - taps // 2
            inside = (rows >= first) & (rows < end)
            values = bx[np.clip(rows, 0, len(bx) - 1)] * inside[:, None]
            y[t] = c[t] * (values * a["w"].T).sum(axis=0)
    return {"y": y}


def case(taps: int) -> Case:
    return Case(
        shortconv,
        SIZES,
        lambda draw, **sizes: arguments(draw, taps, **sizes),
        causal,
        ALWAYS,
        FULL,
        constants={"L": taps},
        rtol=1e-5,
        atol=1e-5,
    )


def centred_case(continued: bool) -> Case:
    def make(draw: Draw, **sizes: int) -> Arguments:
        made = packed(draw, **sizes, taps=3, continued=continued)
        return made if continued else {n: x for n, x in made.items() if n != "positions"}

    return Case(
        shortconv_centred,
        SIZES,
        make,
        two_sided,
        ALWAYS,
        FULL,
        constants={"L": 3},
        rtol=1e-5,
        atol=1e-5,
    )


TestShortconv = conformance(case(3))
TestTwoTaps = conformance(case(2), schedules=None)
TestCentred = conformance(centred_case(continued=False))
TestCentredContinued = conformance(centred_case(continued=True), schedules=None)


def whole(draw: Draw, rows: int, d: int) -> Arguments:
    made = packed(draw, 1, rows, 0, d, 3, continued=False)
    return {**made, "slots": np.array([1], np.int32), "state": draw.f32(2, 2, d)}


@pytest.mark.device
@pytest.mark.parametrize("cut", [1, 2, 3, 9])
def test_slices_of_a_sequence_have_the_bits_of_the_whole(quick_stack: Stack, cut: int) -> None:
    at_once, sliced = whole(Draw(1), 10, 70), whole(Draw(1), 10, 70)
    quick_stack(shortconv, **at_once)
    for begin, end in ((0, cut), *((t, t + 1) for t in range(cut, 10))):
        rows = slice(begin, end)
        part = {n: sliced[n][rows].copy() for n in ("bcx", "positions", "y")}
        part["starts"] = np.array([0, end - begin], np.int32)
        quick_stack(shortconv, **{**sliced, **part})
        assert_same_bits(part["y"], at_once["y"][rows], f"rows {begin} to {end}")
    assert_same_bits(sliced["state"], at_once["state"], "the state")


@pytest.mark.device
def test_a_new_sequence_does_not_see_what_its_slot_held(quick_stack: Stack) -> None:
    fresh, reused = whole(Draw(1), 3, 70), whole(Draw(1), 3, 70)
    fresh["state"][:] = 0
    reused["state"][1] = np.nan
    quick_stack(shortconv, **fresh)
    quick_stack(shortconv, **reused)
    assert_same_bits(reused["y"], fresh["y"], "results")
    assert_same_bits(reused["state"][1], fresh["state"][1], "the state")


@pytest.mark.device
@pytest.mark.parametrize(
    "kernels", [(shortconv, shortconv_a8), (shortconv_centred, shortconv_centred_a8)]
)
def test_quantised_convolutions_have_the_bits_of_two_kernels(
    stack: Stack, kernels: tuple[Any, Any]
) -> None:
    made = [arguments(Draw(2), 3, b=3, longest=6, spare=0, d=70) for _ in kernels]
    if shortconv_centred in kernels:
        made = [{n: x for n, x in a.items() if n not in ("slots", "state")} for a in made]
    plain, fused = made
    fused["y"] = A8.empty(*plain["y"].shape)
    stack(kernels[0], **plain)
    stack(kernels[1], **fused)
    want = A8(*reference.quantise(plain["y"]), 70)
    assert_same_bits(fused["y"], want, "results")
    if "state" in plain:
        assert_same_bits(fused["state"], plain["state"], "the state")
