from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ferro.dsl.quantised import A8
from kernels_src.heads import heads_f16, heads_f32, heads_i8
from kernels_src.norms import rmsnorm
from kernels_src.quantise import quantise
from kernels_src.rotary import rotary
from tests import reference
from tests.conformance import Arguments, Case, Draw, assert_same_bits, conformance
from tests.reference import f64
from tests.stacks import Stack

PLACES = 50


def cache(draw: Draw, kernel: Any, *shape: int) -> Any:
    """What a cache holds before: nothing that a launch should need."""
    if kernel is heads_i8:
        return draw.i32(-127, 127, *shape).astype(np.int8)
    return draw.f16(*shape) if kernel is heads_f16 else draw.f32(*shape)


def arguments(
    draw: Draw, kernel: Any, head: int, half: int, norms: str, t: int, h: int, g: int, spare: int
) -> Arguments:
    angle = np.outer(np.arange(PLACES), 1e4 ** (-np.arange(half) / half))
    places = t + spare
    made = {
        "qkv": draw.f32(t, (h + 2 * g) * head),
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
        "positions": draw.i32(-2, PLACES + 1, t),
        # each row of the cache once, some before and behind it
        "rows": draw.rng.permutation(places + 4)[:t].astype(np.int32) - 2,
        "q": draw.f32(t, h, head),
        "k": cache(draw, kernel, places, g, head),
        "v": cache(draw, kernel, places, g, head),
        "eps": 1e-5,
        **{f"{name}_norm": draw.positive(head) for name in norms},
    }
    if kernel is heads_i8:
        made["k_scale"], made["v_scale"] = (draw.f32(places, g, head // 32) for _ in "kv")
    return made


def split(a: Arguments) -> list[reference.Array]:
    """Queries, keys and values [T, heads, D]."""
    rows, head = a["q"].shape[0], a["q"].shape[2]
    counts = a["q"].shape[1], a["k"].shape[1]
    heads = f64(a["qkv"]).reshape(rows, counts[0] + 2 * counts[1], head)
    return np.split(heads, [counts[0], sum(counts)], axis=1)


def expected(a: Arguments, pairs: str, norm_v: bool) -> dict[str, reference.Array]:
    q, k, v = split(a)
    norms = a.get("q_norm"), a.get("k_norm"), np.ones(q.shape[2]) if norm_v else None
    q, k, v = (
        x if w is None else reference.rmsnorm(x, f64(w), a["eps"])
        for x, w in zip((q, k, v), norms, strict=True)
    )
    placed = (a["positions"] >= 0) & (a["positions"] < PLACES)
    tables = f64(a["cos"]), f64(a["sin"]), a["positions"] * placed
    q, k = (
        np.where(
            placed[:, None, None], reference.rotary(x, *tables, heads=x.shape[1], pairs=pairs), x
        )
        for x in (q, k)
    )
    kept = placed & (a["rows"] >= 0) & (a["rows"] < len(a["k"]))
    found = {"q": q}
    for name, x in (("k", k), ("v", v)):
        if a[name].dtype == np.int8:
            blocks = x.reshape(*x.shape[:2], x.shape[2] // 32, 32)
            name, x = f"{name}_scale", np.abs(blocks).max(axis=-1) / 127
        found[name] = f64(a[name])
        found[name][a["rows"][kept]] = x[kept]
    return found


def case(
    kernel: Any, head: int, half: int, pairs: str, norms: str = "", norm_v: bool = False
) -> Case:
    return Case(
        kernel,
        {
            "t": st.integers(0, 5),
            "h": st.integers(0, 4),
            "g": st.integers(0, 2),
            "spare": st.integers(0, 3),
        },
        lambda draw, **sizes: arguments(draw, kernel, head, half, norms, **sizes),
        lambda a: expected(a, pairs, norm_v),
        [{"t": 5, "h": 4, "g": 2, "spare": 2}, {"t": 1, "h": 1, "g": 1, "spare": 0}],
        [{"t": 70, "h": 16, "g": 8, "spare": 9}],
        constants={"C": half, "D": head, "PAIRS": pairs, "NORM_V": norm_v},
        rtol=1e-3 if kernel is heads_f16 else 1e-5,
        atol=1e-3 if kernel is heads_f16 else 1e-5,
    )


TestHead64 = conformance(case(heads_f32, 64, 32, "halves", "qk"))
TestHead64Plain = conformance(case(heads_f16, 64, 32, "interleaved"))
TestHead64PartlyTurned = conformance(case(heads_i8, 64, 16, "interleaved", "qk", norm_v=True))
TestHead256 = conformance(case(heads_i8, 256, 128, "halves", "k"))
TestOddHead = conformance(case(heads_f16, 40, 13, "halves", "q", norm_v=True))


@pytest.mark.device
@pytest.mark.parametrize(("norms", "pairs"), [("qk", "halves"), ("", "interleaved")])
def test_heads_have_the_bits_of_norm_rotation_and_quantisation(
    quick_stack: Stack, norms: str, pairs: str
) -> None:
    sizes = {"t": 9, "h": 4, "g": 2, "spare": 0}
    fused = arguments(Draw(1), heads_i8, 64, 32, norms, **sizes)
    fused["positions"] %= PLACES
    fused["rows"] = np.arange(9, dtype=np.int32)[::-1].copy()
    quick_stack(heads_i8, PAIRS=pairs, **fused)
    queries, keys, values = (x.astype(np.float32) for x in split(fused))
    for name, x in (("q", queries), ("k", keys)):
        if norms:
            flat = x.reshape(-1, 64)
            normed = np.empty_like(flat)
            quick_stack(rmsnorm, x=flat.copy(), w=fused[f"{name}_norm"], y=normed, eps=1e-5)
            x[...] = normed.reshape(x.shape)
        tables = {n: fused[n] for n in ("cos", "sin", "positions")}
        quick_stack(rotary, x=x, heads=x.shape[1], PAIRS=pairs, **tables)
    assert_same_bits(fused["q"], queries, "queries")
    for name, x in (("k", keys), ("v", values)):
        parts = A8.empty(9, 2 * 64)
        quick_stack(quantise, x=x[::-1].reshape(9, -1).copy(), y=parts)
        assert_same_bits(fused[name].reshape(9, -1), parts.q, f"int8 of {name}")
        assert_same_bits(fused[f"{name}_scale"].reshape(9, -1), parts.scale, f"scales of {name}")
