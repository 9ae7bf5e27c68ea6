from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ferro.codegen.program import Config
from kernels_src.attention import attention, attention_f16, attention_i8
from tests import reference
from tests.conformance import FULL, Arguments, Case, Draw, conformance
from tests.reference import f64

FAR = 2**30 - 1
WINDOWS = [(FAR, 0), (15, 0), (511, 0), (512, 512), (FAR, FAR), (0, 3)]


KERNELS = {"f32": attention, "f16": attention_f16, "i8": attention_i8}


def cache(draw: Draw, dtype: str, *shape: int) -> Iterator[tuple[str, Any]]:
    """Keys and values as a cache of that dtype stores them."""
    for name in "kv":
        if dtype == "i8":
            yield name, draw.i32(-127, 127, *shape).astype(np.int8)
            yield f"{name}_scale", draw.positive(*shape[:-1], shape[-1] // 32) / np.float32(64)
        else:
            yield name, draw.f16(*shape) if dtype == "f16" else draw.f32(*shape)


def as_read(a: Arguments, name: str) -> reference.Array:
    """Keys or values as float64."""
    if f"{name}_scale" not in a:
        return f64(a[name])
    shape = a[name].shape
    flat = a[name].reshape(-1, shape[-1]), a[f"{name}_scale"].reshape(-1, shape[-1] // 32)
    return reference.dequantise(*flat).reshape(shape)


def arguments(head: int, group: int, dtype: str) -> Callable[..., Arguments]:
    def make(draw: Draw, b: int, g: int, queries: int, past: int, window: int) -> Arguments:
        starts = draw.packed(b, queries)
        counts = np.diff(starts)
        earlier = draw.i32(0, past, b)
        earlier[counts == queries] = past
        counts = counts + earlier
        gaps = draw.i32(0, 5, b)
        bases = np.cumsum(gaps + counts) - counts
        rows = int((gaps + counts).sum()) + 3
        left, right = WINDOWS[window]
        return {
            "q": draw.f32(int(starts[-1]), g * group, head, scale=2.0),
            **dict(cache(draw, dtype, rows, g, head)),
            "starts": starts,
            "keys": np.stack([bases, counts], axis=1).astype(np.int32),
            "out": draw.f32(int(starts[-1]), g * group, head),
            "longest": queries,
            "most": queries + past,
            "left": left,
            "right": right,
            "scale": head**-0.5,
        }

    return make


def case(head: int, group: int, dtype: str = "f32", cap: float = 0.0) -> Case:
    def expected(a: Arguments) -> dict[str, reference.Array]:
        q, k, v = f64(a["q"]), as_read(a, "k"), as_read(a, "v")
        tables = a["starts"], a["keys"]
        out = reference.attention(q, k, v, *tables, a["left"], a["right"], a["scale"], cap)
        return {"out": out}

    def sizes(queries: int, past: int, window: int) -> dict[str, int]:
        return {"b": 1, "g": 1, "queries": queries, "past": past, "window": window}

    long = range(len(WINDOWS)) if (head, dtype) == (64, "f32") else (1, 3)
    return Case(
        KERNELS[dtype],
        {
            "b": st.integers(0, 3),
            "g": st.integers(1, 2),
            "queries": st.integers(1, max(5, 4096 // head)),
            "past": st.integers(0, 150),
            "window": st.integers(0, len(WINDOWS) - 1),
        },
        arguments(head, group, dtype),
        expected,
        [
            {"b": 3, "g": 2, "queries": 5, "past": 130, "window": 0},
            sizes(1, 0, 0),
            *(sizes(keys, 0, 0) for keys in (63, 64, 65) if head < 256),
            *(sizes(2, 1919, window) for window in long),
        ],
        [
            *(sizes(keys, 0, 0) for keys in (63, 64, 65)),
            # one token at a time, and a prompt whose last tokens are new
            *(sizes(1, keys - 1, 0) for keys in (63, 64, 65, 1921)),
            *(sizes(130, 1791, window) for window in range(len(WINDOWS))),
        ],
        constants={"D": head, "GROUP": group, "CAP": cap},
        rtol=1e-4,
        atol=1e-5,
        wild=False,
        short=lambda sizes: head < 256 and (sizes["queries"] + sizes["past"]) * head < 30_000,
    )


SPLIT = [Config(split=2), Config({"BR": 2}, split=5)]

TestHead64 = conformance(case(64, 2), schedules=SPLIT)
TestHead64Cap = conformance(case(64, 1, dtype="f16", cap=50.0), schedules=None)
TestHead128 = conformance(case(128, 3), schedules=None)
TestHead256 = conformance(case(256, 4, dtype="f16"), schedules=None)
TestHead512 = conformance(case(512, 2, dtype="f16"), schedules=None)
TestInt8 = conformance(case(64, 8, dtype="i8"), schedules=None)
TestInt8Head256 = conformance(case(256, 1, dtype="i8"), schedules=None)
TestOddHead = conformance(case(40, 1), schedules=None)

GROUPS = (1, 2, 3, 4, 8)
if FULL:
    for head in (64, 128, 256, 512):
        for dtype in KERNELS:
            for turn, group in enumerate(GROUPS):
                # every schedule for every head and dtype: a build for each group too takes hours
                name = f"TestFull{head}x{group}_{dtype}"
                made = conformance(case(head, group, dtype), SPLIT, (turn, len(GROUPS)))
                globals()[name] = made
