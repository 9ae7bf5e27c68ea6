"""Inputs of each probe and what it must give, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.dsl import exact

Array = npt.NDArray[Any]
WORDS = 512


@dataclass(frozen=True)
class Check:
    """Inputs ``a``, ``b``, ``c``, the number of result words, work-items and their group, and a
    function from the result words to "" or what is wrong."""

    inputs: tuple[Array, Array, Array]
    results: int
    items: int
    group: int
    verdict: Callable[[Array], str]


def check(name: str) -> Check:
    """The check of a probe. Raises KeyError for an unknown one."""
    return CHECKS[name]()


def dot(lanes: int) -> Check:
    """Blocks of four int8 products added to an int32; -128 and +-127 in every combination."""
    rng = np.random.default_rng(1)
    a = rng.integers(-128, 128, (WORDS, 4)).astype(np.int8)
    b = rng.integers(-127, 128, (WORDS, 4)).astype(np.int8)
    extremes = np.array([-128, -127, 127, 0], np.int8)
    a[:64], b[:64] = np.repeat(extremes, 16)[:, None], np.tile(extremes, 16)[:, None]
    b[:64] = np.where(b[:64] == -128, -127, b[:64])
    c = rng.integers(-(10**6), 10**6, WORDS).astype(np.int32)
    want = c + (a.astype(np.int32) * b.astype(np.int32)).sum(axis=1, dtype=np.int32)

    def verdict(got: Array) -> str:
        wrong = int((got.view(np.int32) != want).sum())
        return f"{wrong} of {WORDS} dot products are wrong" if wrong else ""

    return Check((words(a), words(b), c), WORDS, WORDS // lanes, 1, verdict)


def block_read() -> Check:
    """Eight words of each lane of a sub-group of 16, a lane's word for all, exchanged lanes."""
    a = np.arange(WORDS, dtype=np.uint32)
    items = WORDS // 8
    words = a.reshape(-1, 8, 16).transpose(0, 2, 1).reshape(items, 8)
    lanes = np.arange(items)
    want = np.concatenate([words.ravel(), words[lanes & ~15 | 3, 0], words[lanes ^ 4, 0]])

    def verdict(got: Array) -> str:
        return "" if np.array_equal(got.view(np.uint32), want) else "words arrive in another order"

    return Check((a, a, a), want.size, items, 16, verdict)


def halves() -> Check:
    count = 1 << 16
    stored = np.arange(count, dtype=np.uint16)
    values = floats(count, 2, spread=20)
    want_load = stored.view(np.float16).astype(np.float32)
    want_store = exact.to_half(values)

    def verdict(got: Array) -> str:
        loaded, rest = got[:count].view(np.float32), got[count:].view(np.float16)[:count]
        wrong = describe("reading halves", loaded, want_load)
        return wrong or describe("rounding to half", rest, want_store)

    return Check((words(stored), values, values), count + count // 2, count, 1, verdict)


def arithmetic(vector: int = 1) -> Check:
    count = 1 << 14
    a, b, c = (floats(count, seed) for seed in (3, 4, 5))
    # products that nearly cancel show a contracted multiply-add
    with np.errstate(all="ignore"):
        c[: count // 2] = -(a * b)[: count // 2]
        wants = {
            "fma": exact.fma32(a, b, c),
            "multiply, then add": a * b + c,
            "multiply": a * b,
            "add": a + c,
            "rint": np.rint(a),
            "floor": np.floor(a),
        }

    def verdict(got: Array) -> str:
        parts = got.view(np.float32).reshape(len(wants), count)
        pairs = zip(wants.items(), parts, strict=True)
        found = [describe(n, part, want, (a, b, c)) for (n, want), part in pairs]
        return "; ".join(filter(None, found))

    return Check((a, b, c), len(wants) * count, count // vector, 1, verdict)


def llvm_fma() -> Check:
    count = 1 << 14
    a, b, c = (floats(count, seed) for seed in (8, 9, 10))
    want = exact.fma32(a, b, c)

    def verdict(got: Array) -> str:
        return describe("fma by its LLVM name", got.view(np.float32), want, (a, b, c))

    return Check((a, b, c), count, count // 8, 1, verdict)


def conversions() -> Check:
    count = 1 << 14
    a = floats(count, 6, spread=40)
    a = np.where(np.isnan(a), np.float32(0.5), a)
    b = np.random.default_rng(7).integers(-(2**31), 2**31, count).astype(np.int32)
    b[: count // 2] >>= np.arange(count // 2, dtype=np.int32) % 31
    wants = {
        "float to int": exact.cast(a, np.dtype(np.int32)),
        "int to float": b.astype(np.float32).view(np.int32),
        "unsigned to float": b.view(np.uint32).astype(np.float32).view(np.int32),
        "int to char, saturating": np.clip(b, -128, 127),
    }

    def verdict(got: Array) -> str:
        parts = got.view(np.int32).reshape(len(wants), count)
        pairs = zip(wants.items(), parts, strict=True)
        return "; ".join(f"{n} differs" for (n, want), part in pairs if (part != want).any())

    return Check((a, b, b), len(wants) * count, count, 1, verdict)


def prefetch() -> Check:
    words = np.arange(256, dtype=np.uint32)

    def verdict(got: Array) -> str:
        return "" if np.array_equal(got.view(np.uint32), words) else "loads differ"

    return Check((words, words, words), 256, 256, 1, verdict)


def floats(count: int, seed: int, spread: int = 254) -> Array:
    """Floats of every exponent within ``spread``, with special values and subnormals."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(max(0, 127 - spread // 2), min(255, 128 + spread // 2), count)
    sign = rng.integers(0, 2, count).astype(np.uint32) << np.uint32(31)
    bits = sign | (exponent.astype(np.uint32) << np.uint32(23))
    values = (bits | rng.integers(0, 1 << 23, count).astype(np.uint32)).view(np.float32)
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1.1754944e-38, 0.5, 2.5])
    values[rng.integers(0, count, count // 16)] = rng.choice(odd.astype(np.float32), count // 16)
    return values


def words(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint32)


def different(got: Array, want: Array) -> Array:
    """Where the bits differ; any NaN equals any NaN."""
    whole = np.uint16 if want.dtype.itemsize == 2 else np.uint32
    same = np.ascontiguousarray(got).view(whole) == np.ascontiguousarray(want).view(whole)
    return ~(same | (np.isnan(got) & np.isnan(want)))


def describe(name: str, got: Array, want: Array, inputs: tuple[Array, ...] = ()) -> str:
    """ "" if the bits are equal, else a few words on what kind of values differ."""
    wrong = different(got, want)
    small = np.logical_or.reduce([subnormal(v) for v in (want, *inputs)])
    zeros = (got == 0) & (want == 0)
    parts = [
        "subnormals are flushed" if (wrong & small).any() else "",
        "signs of zeros differ" if (wrong & zeros & ~small).any() else "",
    ]
    rest = int((wrong & ~zeros & ~small).sum())
    parts.append(f"{rest} of {wrong.size} differ" if rest else "")
    found = ", ".join(filter(None, parts))
    return f"{name}: {found}" if found else ""


def subnormal(values: Array) -> Array:
    size = np.abs(values)
    return (size > 0) & (size < np.finfo(values.dtype).tiny)


CHECKS: dict[str, Callable[[], Check]] = {
    "vnni512": lambda: dot(16),
    "vnni256": lambda: dot(8),
    "avx2": lambda: dot(8),
    "dp4a": lambda: dot(1),
    "emulated": lambda: dot(1),
    "block_read": block_read,
    "vload_half": halves,
    "arithmetic": arithmetic,
    "vector arithmetic": lambda: arithmetic(8),
    "llvm_fma": llvm_fma,
    "prefetch": prefetch,
    "conversions": conversions,
}
