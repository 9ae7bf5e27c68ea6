"""Broken files: a ModelError or a model, never a crash, a hang or a heap of memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferro.models.errors import ModelError
from tests.fuzz import gguf_files
from tests.fuzz.gguf_files import use
from tests.fuzz.target import NUMBERS
from tests.models.ggufs import header

# Metadata is mapped, tensors become float32 in chunks: a few times the file, and a little.
SLACK = 4 << 20


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Changes to make one after the other: what, where (a share of the header), and a number."""
    kinds = st.sampled_from(["byte", "u32", "u64", "cut", "insert", "remove", "repeat"])
    where, number = st.integers(0, 2**20), st.sampled_from(NUMBERS) | st.integers(0, 2**64 - 1)
    return draw(st.lists(st.tuples(kinds, where, number), min_size=1, max_size=4))


def damaged(data: bytes, start: int, changes: list[tuple[str, int, int]]) -> bytes:
    made = bytearray(data)
    for kind, where, number in changes:
        at = where % max(min(start, len(made)), 1)
        if kind == "byte":
            made[at : at + 1] = bytes([number & 255])
        elif kind in ("u32", "u64"):
            size = 4 if kind == "u32" else 8
            made[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
        elif kind == "cut":
            del made[where % (len(made) + 1) :]
        elif kind == "insert":
            made[at:at] = bytes([number & 255]) * (1 + number % 9)
        elif kind == "remove":
            del made[at : at + 1 + number % 9]
        else:
            made[at:at] = made[at : at + 1 + number % 64]
    return bytes(made)


@settings(max_examples=settings().max_examples * 20)
@given(changes=damages(), seed=st.integers(0, 5))
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, changes: list, seed: int) -> None:
    data = gguf_files.seeds()[seed]
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged(data, header_size(data), changes))
    tracemalloc.start()
    try:
        use(path)
    except ModelError as error:
        assert str(error).startswith(str(path)) and error.exit_code == 2
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < SLACK + 8 * len(data)


def header_size(data: bytes) -> int:
    """Bytes before the tensors; the end of the last tensor's name is near enough."""
    return max(data.rfind(b".weight"), data.rfind(b"\0y")) + 64 if b"blk." in data else len(data)


@settings(max_examples=settings().max_examples * 10)
@given(
    data=st.binary(max_size=200),
    counts=st.tuples(*[st.integers(0, 2**64 - 1) | st.integers(0, 4)] * 2),
)
def test_any_bytes_after_the_counts(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, counts: tuple[int, int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.gguf"
    path.write_bytes(header(counts=counts) + data)
    try:
        use(path)
    except ModelError as error:
        assert str(error).startswith(str(path))
