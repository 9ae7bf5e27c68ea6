"""Broken files: a ModelError or a model, never a crash, a hang or a heap of memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferro.commands.inspect import describe, text
from ferro.models import weights
from ferro.models.architectures import recognise
from ferro.models.errors import ModelError
from ferro.models.gguf import GgufFile
from ferro.models.gguf_cursor import Texts
from ferro.report import to_json
from tests.models import ggufs
from tests.models.ggufs import entry, header, key, whole
from tests.models.ggufs import text as written

# Metadata is mapped, tensors become float32 in chunks: a few times the file, and a little.
SLACK = 4 << 20

# value types that are numbers, as the struct module writes them
FORMS = [*enumerate("BbHhIif?"), (10, "Q"), (11, "q"), (12, "d")]
NUMBERS = [0, 1, 2, 7, 31, 32, 33, 255, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**32, 2**40, 2**53, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("seeds")
    names = [("llama", "Q4_1"), ("lfm2", "Q8_0"), ("gemma3", "F16"), ("gemma-embedding2", "BF16")]
    found = [ggufs.model(folder / name, name, kind).read_bytes() for name, kind in names]
    numbers = [key(f"n{kind}", kind, bytes(8)[: struct.calcsize(form)]) for kind, form in FORMS]
    arrays = [key(f"a{kind}", 9, struct.pack("<IQ", kind, 2) + bytes(16)) for kind, _ in FORMS[-3:]]
    texts = [key("t", 8, written("é")), key("ts", 9, struct.pack("<IQ", 8, 2) + written("a") * 2)]
    tensors = [entry("x", [32, 2], 8), entry("y", [4], 0, 96)]
    return [*found, whole([*numbers, *arrays, *texts], tensors, 128)]


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


def use(path: Path) -> None:
    """Everything that is done with a file on the way to a device."""
    file = GgufFile(path)
    for value in file.metadata.values():
        assert not isinstance(value, Texts) or len(list(value)) == len(value)
    made = None
    try:
        made = recognise(file)
    except ModelError:
        pass
    described = describe(file, made, None) | {"supported": made is not None}
    text(described, True).encode("utf-8", "strict")
    to_json(described)
    for name, info in file.tensors.items():
        try:
            weights.f32(file, name)
            if weights.is_matrix(info):
                weights.q8(file, name)
        except ModelError:
            continue


@settings(max_examples=settings().max_examples * 20)
@given(changes=damages(), seed=st.integers(0, 4))
def test_damaged_files(
    models: list[bytes], tmp_path_factory: pytest.TempPathFactory, changes: list, seed: int
) -> None:
    data = models[seed]
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
