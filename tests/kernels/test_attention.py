from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from ferro.codegen.program import Config
from kernels_src.attention import attention, attention_f16
from tests import reference
from tests.conformance import FULL, Arguments, Case, Draw, conformance
from tests.reference import f64

FAR = 2**30 - 1
WINDOWS = [(FAR, 0), (15, 0), (511, 0), (512, 512), (FAR, FAR), (0, 3)]


def arguments(head: int, group: int, half: bool) -> Callable[..., Arguments]:
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
        cache = draw.f16 if half else draw.f32
        return {
            "q": draw.f32(int(starts[-1]), g * group, head, scale=2.0),
            "k": cache(rows, g, head),
            "v": cache(rows, g, head),
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


def case(head: int, group: int, half: bool = False, cap: float = 0.0) -> Case:
    def expected(a: Arguments) -> dict[str, reference.Array]:
        q, k, v = f64(a["q"]), f64(a["k"]), f64(a["v"])
        tables = a["starts"], a["keys"]
        out = reference.attention(q, k, v, *tables, a["left"], a["right"], a["scale"], cap)
        return {"out": out}

    def sizes(queries: int, past: int, window: int) -> dict[str, int]:
        return {"b": 1, "g": 1, "queries": queries, "past": past, "window": window}

    return Case(
        attention_f16 if half else attention,
        {
            "b": st.integers(0, 3),
            "g": st.integers(1, 2),
            "queries": st.integers(1, max(5, 4096 // head)),
            "past": st.integers(0, 150),
            "window": st.integers(0, len(WINDOWS) - 1),
        },
        arguments(head, group, half),
        expected,
        [
            {"b": 3, "g": 2, "queries": 5, "past": 130, "window": 0},
            sizes(1, 0, 0),
            *(sizes(keys, 0, 0) for keys in (63, 64, 65) if head < 256),
            *(sizes(2, 1919, window) for window in (range(len(WINDOWS)) if head < 100 else (1, 3))),
        ],
        [sizes(130, 1791, window) for window in range(len(WINDOWS))],
        constants={"D": head, "GROUP": group, "CAP": cap},
        rtol=1e-4,
        atol=1e-5,
        wild=False,
        short=lambda sizes: head < 256 and (sizes["queries"] + sizes["past"]) * head < 30_000,
    )


SPLIT = [Config(split=2), Config({"BR": 2}, split=5)]

TestHead64 = conformance(case(64, 2), schedules=SPLIT)
TestHead64Cap = conformance(case(64, 1, half=True, cap=50.0), schedules=None)
TestHead128 = conformance(case(128, 3), schedules=None)
TestHead256 = conformance(case(256, 4, half=True), schedules=None)
TestHead512 = conformance(case(512, 2, half=True), schedules=None)
TestOddHead = conformance(case(40, 1), schedules=None)

if FULL:
    for head in (64, 128, 256, 512):
        for group in (1, 2, 3, 4):
            for half in (False, True):
                name = f"TestFull{head}x{group}{'Half' if half else ''}"
                globals()[name] = conformance(case(head, group, half), schedules=SPLIT)
