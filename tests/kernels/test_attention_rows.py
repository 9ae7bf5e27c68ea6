"""Which rows of a cache reach the result of attention: the keys of the own sequence, no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ferro.codegen.program import Config
from ferro.runtime import open_device
from kernels_src.attention import attention, attention_f16
from tests.stacks import Stack

FAR = 2**30 - 1
HEAD, GROUP, SLOT = 32, 2, 200
GARBAGE = (np.nan, np.inf, -np.inf)
KINDS = {"f32": (attention, np.float32), "f16": (attention_f16, np.float16)}

# queries and keys of each sequence; its slot of the cache has SLOT rows
SHAPES = {
    "decode": ([1, 1, 1, 1], [1, 63, 64, 65]),
    "prefill": ([1, 5, 64, 70], [1, 5, 64, 70]),
    "prefill after a prefix": ([3, 9], [130, 129]),
    "both": ([1, 7, 1], [77, 80, 128]),
    "no key": ([1, 1], [0, 3]),
}


def launch(shape: str, kind: Any, left: int, right: int) -> dict[str, Any]:
    """Arguments whose caches hold numbers everywhere."""
    rng = np.random.default_rng(7)
    queries, counts = SHAPES[shape]
    starts = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
    rows = SLOT * len(counts)
    return {
        "q": rng.standard_normal((int(starts[-1]), GROUP, HEAD)).astype(np.float32),
        "k": rng.standard_normal((rows, 1, HEAD)).astype(kind),
        "v": rng.standard_normal((rows, 1, HEAD)).astype(kind),
        "starts": starts,
        "keys": np.array([[SLOT * s, n] for s, n in enumerate(counts)], np.int32),
        "out": np.zeros((int(starts[-1]), GROUP, HEAD), np.float32),
        "longest": max(queries),
        "most": SLOT,
        "left": left,
        "right": right,
        "scale": HEAD**-0.5,
        "GROUP": GROUP,
    }


def spoil(given: dict[str, Any], names: str, first: int = 0) -> dict[str, Any]:
    """The same with garbage in every row that is no key (or, with ``first``, comes before the
    key ``first`` of its sequence)."""
    spoilt = {**given, "out": np.zeros_like(given["out"])}
    wanted = np.zeros(len(given["k"]), bool)
    for base, count in given["keys"]:
        wanted[base + min(first, count) : base + count] = True
    for name in names:
        cache = given[name].copy()
        bad = np.flatnonzero(~wanted)
        cache[bad] = np.resize(np.array(GARBAGE, cache.dtype), (len(bad), 1, 1))
        spoilt[name] = cache
    return spoilt


def expected(kernel: Any, given: dict[str, Any]) -> Any:
    clean = {**given, "out": np.zeros_like(given["out"])}
    open_device("interpreter").run(kernel, **clean)
    assert np.isfinite(clean["out"]).all()
    return clean["out"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_interpreter_reads_own_keys_only(kind: str, shape: str) -> None:
    kernel, dtype = KINDS[kind]
    given = launch(shape, dtype, FAR, 0)
    spoilt = spoil(given, "kv")
    open_device("interpreter").run(kernel, **spoilt)
    assert spoilt["out"].tobytes() == expected(kernel, given).tobytes()


@pytest.mark.device
@pytest.mark.parametrize("kind", KINDS)
def test_stale_rows_change_no_bit(stack: Stack, kind: str) -> None:
    kernel, dtype = KINDS[kind]
    for config in stack.share([Config(), Config(split=2)]):
        for shape in SHAPES:
            for left, right in ((FAR, 0), (15, 0), (FAR, FAR)):
                given = launch(shape, dtype, left, right)
                spoilt = spoil(given, "kv")
                stack(kernel, config, **spoilt)
                same = spoilt["out"].tobytes() == expected(kernel, given).tobytes()
                assert same, (shape, left, right, config)


def test_whole_chunks_outside_of_a_window_do_not_matter() -> None:
    given = launch("decode", np.float16, 15, 0)
    given["keys"][:, 1] = (150, 64 + 15, 64 + 16, 200)
    spoilt = spoil(given, "kv", first=64)
    open_device("interpreter").run(attention_f16, **spoilt)
    want = expected(attention_f16, given)
    assert spoilt["out"][[0, 2, 3]].tobytes() == want[[0, 2, 3]].tobytes()
    assert not np.isfinite(spoilt["out"][1]).all()


def test_the_k_of_a_hidden_key_does_not_matter_its_v_must_be_finite() -> None:
    given = launch("prefill", np.float32, FAR, 0)
    base, count = (int(n) for n in given["keys"][3])
    last_query = int(given["starts"][4]) - 1
    want = expected(attention, given)
    for name, reached in (("k", False), ("v", True)):
        spoilt = {**given, name: given[name].copy(), "out": np.zeros_like(given["out"])}
        spoilt[name][base + count - 1] = np.nan
        open_device("interpreter").run(attention, **spoilt)
        same = spoilt["out"][last_query - 1].tobytes() == want[last_query - 1].tobytes()
        assert same is not reached
        assert spoilt["out"][: given["starts"][3]].tobytes() == want[: given["starts"][3]].tobytes()
