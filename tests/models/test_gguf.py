"""Reading GGUF files: what the gguf package writes, and what a broken file is told."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from ferro.models import errors
from ferro.models.architectures import recognise
from ferro.models.errors import (
    CutShort,
    Damaged,
    DuplicateName,
    ModelError,
    NotGguf,
    UnsupportedArchitecture,
    WrongShape,
)
from ferro.models.gguf import GgufFile
from tests.models import ggufs
from tests.models.ggufs import entry, header, key, text, whole

U32, TEXT, ARRAY, U64 = 4, 8, 9, 10


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return ggufs.model(tmp_path / "small.gguf")


def opened(folder: Path, data: bytes) -> GgufFile:
    path = folder / "made.gguf"
    path.write_bytes(data)
    return GgufFile(path)


def refused(folder: Path, data: bytes, kind: type[ModelError]) -> str:
    with pytest.raises(kind) as caught:
        opened(folder, data)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"{folder / 'made.gguf'}: ")
    return caught.value.problem


# --- valid files ---------------------------------------------------------------------------------


def test_metadata_of_every_type(tmp_path: Path) -> None:
    path = tmp_path / "every.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values = {"uint8": 255, "int8": -128, "uint16": 65535, "int16": -5, "uint32": 2**32 - 1}
    values |= {"int32": -7, "uint64": 2**64 - 1, "int64": -(2**63), "float32": 0.5}
    values |= {"float64": 0.1, "bool": True, "string": "naïve 🙂\n"}
    for name, value in values.items():
        getattr(writer, f"add_{name}")(name, value)
    writer.add_array("whole", [1, -2, 3])
    writer.add_array("flags", [True, False])
    writer.add_array("texts", ["", "é", "x y"])
    ggufs.finish(writer)
    found = GgufFile(path).metadata
    assert {name: found[name] for name in values} == values
    assert found.array("whole").tolist() == [1, -2, 3]
    assert found.array("flags").tolist() == [True, False] and found.array("flags").dtype == bool
    texts = found.texts("texts")
    assert (len(texts), list(texts), texts[-1], texts[:2]) == (
        3,
        ["", "é", "x y"],
        "x y",
        ["", "é"],
    )
    assert found.text("general.architecture") == "llama"


def test_tensors_are_those_that_the_package_reads(small: Path) -> None:
    ours, theirs = GgufFile(small), gguf.GGUFReader(small)
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        info = ours.tensor(tensor.name)
        assert info.shape == tuple(int(n) for n in reversed(tensor.shape))
        assert (info.kind.name, info.nbytes) == (tensor.tensor_type.name, tensor.n_bytes)
        assert info.size == tensor.n_elements
        read = ours.blocks(info)
        assert read.tobytes() == tensor.data.tobytes() and not read.flags.writeable


def test_dropped_pages_are_read_again(small: Path) -> None:
    file = GgufFile(small)
    info = file.tensor("blk.0.ffn_up.weight")
    before = file.blocks(info).copy()
    file.drop(info)
    assert (file.blocks(info) == before).all()


def test_other_alignments(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    for name in "ab":
        writer.add_tensor(name, np.full(3, ord(name), np.float32))
    ggufs.finish(writer)
    file = GgufFile(path)
    starts = [file.tensor(name).start for name in "ab"]
    assert all(start % 256 == 0 for start in starts)
    assert file.blocks(file.tensor("b")).view(np.float32).ravel().tolist() == [98.0] * 3


def test_version_2_and_a_scalar(tmp_path: Path) -> None:
    data = header([], [entry("x", [], 0)], version=2)
    file = opened(tmp_path, data + bytes(-len(data) % 32) + struct.pack("<f", 1.5))
    assert file.version == 2 and file.tensor("x").shape == ()
    assert file.blocks(file.tensor("x")).view(np.float32).item() == 1.5


def test_texts_that_are_no_utf_8_are_kept(tmp_path: Path) -> None:
    file = opened(tmp_path, whole([key("k", TEXT, text(b"a\xffb"))]))
    assert file.metadata.text("k").encode("utf-8", "surrogateescape") == b"a\xffb"


# --- other files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"GGU", b"ggml and more", b"\x7fELF" + bytes(100)])
def test_other_files(tmp_path: Path, data: bytes) -> None:
    assert "not a GGUF file" in refused(tmp_path, data, NotGguf)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotGguf, match="no regular file"):
        GgufFile(tmp_path / "pipe")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GgufFile(tmp_path / "absent")
    with pytest.raises(IsADirectoryError):
        GgufFile(tmp_path)


@pytest.mark.parametrize(
    ("version", "said"), [(1, "version 1"), (4, "version 4"), (3 << 24, "big-endian"), (0, "0")]
)
def test_other_versions(tmp_path: Path, version: int, said: str) -> None:
    assert said in refused(tmp_path, header(version=version), errors.UnsupportedVersion)


# --- broken files --------------------------------------------------------------------------------


def test_every_way_to_cut_a_file_is_noticed(tmp_path: Path, small: Path) -> None:
    data = small.read_bytes()
    start = min(info.start for info in GgufFile(small).tensors.values())
    for size in [*range(4, 300), *range(300, start, 23), *range(start, len(data) - 32, 2977)]:
        with pytest.raises(CutShort if size >= start else ModelError) as caught:
            opened(tmp_path, data[:size])
        assert "cut short" in str(caught.value)


def test_a_cut_names_the_tensor_and_the_bytes(tmp_path: Path, small: Path) -> None:
    info = GgufFile(small).tensor("blk.1.attn_q.weight")
    said = refused(tmp_path, small.read_bytes()[: info.stop - 7], CutShort)
    assert "`blk.1.attn_q.weight`" in said and "(7 bytes are missing)" in said


HUGE = struct.pack("<Q", 2**64 - 1)
MANY = struct.pack("<Q", 2**40)
NUMBER = struct.pack("<I", 1)

HOSTILE: dict[str, tuple[bytes, type[ModelError], str]] = {
    "count of keys": (header(counts=(0, 2**63)), Damaged, "keys"),
    "count of tensors": (header(counts=(2**63, 0)), Damaged, "tensors"),
    "more keys than bytes": (header(counts=(0, 60000)), Damaged, "60000 keys"),
    "more tensors than bytes": (header(counts=(60000, 0)), Damaged, "60000 tensors"),
    "length of a key": (header([HUGE + b"k"], counts=(0, 1)) + bytes(9), Damaged, "key 0"),
    "no key": (whole([key("", U32, NUMBER)]), Damaged, "key 0"),
    "unprintable key": (whole([key("a\nb", U32, NUMBER)]), Damaged, "key 0"),
    "key of other bytes": (whole([key(b"\xff\xfe", U32, NUMBER)]), Damaged, "key 0"),
    "length of a text": (whole([key("k", TEXT, HUGE + b"text")]), Damaged, "`k`"),
    "a text past the end": (header([key("k", TEXT, text(b"x" * 9)[:-1])]), Damaged, "`k`"),
    "value type": (whole([key("k", 13, NUMBER)]), Damaged, "type 13"),
    "length of an array": (whole([key("k", ARRAY, struct.pack("<I", U64) + HUGE)]), Damaged, "`k`"),
    "an array past the end": (
        whole([key("k", ARRAY, struct.pack("<IQ", U64, 9))]),
        Damaged,
        "9 elements of `k`",
    ),
    "count of texts": (whole([key("k", ARRAY, struct.pack("<I", TEXT) + MANY)]), Damaged, "`k`"),
    "a text in an array": (
        whole([key("k", ARRAY, struct.pack("<IQ", TEXT, 2) + text("a") + HUGE)]),
        Damaged,
        "text 1 of 2 of `k`",
    ),
    "an array of arrays": (
        whole([key("k", ARRAY, struct.pack("<IQIQ", ARRAY, 1, U32, 0))]),
        Damaged,
        "value type 9",
    ),
    "two keys": (whole([key("k", U32, NUMBER)] * 2), DuplicateName, "`k`"),
    "axes": (whole([], [text("t") + struct.pack("<I", 2**32 - 1)]) + bytes(64), Damaged, "axes"),
    "five axes": (whole([], [entry("t", [1] * 5)], 64), Damaged, "5 axes"),
    "an axis of nothing": (whole([], [entry("t", [4, 0])], 64), WrongShape, "[0, 4]"),
    "axes that overflow": (whole([], [entry("t", [2**33, 2**33])], 64), WrongShape, "`t`"),
    "rows of part of a block": (whole([], [entry("t", [33, 2], 8)], 999), WrongShape, "Q8_0"),
    "tensor type": (whole([], [entry("t", [32], 999)], 99), errors.UnsupportedType, "type 999"),
    "two tensors": (
        whole([], [entry("t", [8], 0, 0), entry("t", [8], 0, 32)], 64),
        DuplicateName,
        "`t`",
    ),
    "shared bytes": (
        whole([], [entry("a", [16], 0, 0), entry("b", [8], 0, 32)], 64),
        Damaged,
        "`a` and `b`",
    ),
    "offset between": (whole([], [entry("t", [8], 0, 16)], 64), Damaged, "multiple of 32"),
    "offset past the end": (whole([], [entry("t", [8], 0, 2**63)], 64), CutShort, "`t`"),
    "offset that wraps": (whole([], [entry("t", [8], 0, 2**64 - 32)], 64), CutShort, "`t`"),
    "size past the end": (whole([], [entry("t", [2**40])], 64), CutShort, "`t`"),
    "alignment of nothing": (
        whole([key("general.alignment", U32, bytes(4))]),
        Damaged,
        "general.alignment",
    ),
    "alignment of three": (
        whole([key("general.alignment", U32, struct.pack("<I", 3))]),
        Damaged,
        "general.alignment",
    ),
    "alignment in words": (
        whole([key("general.alignment", TEXT, text("32"))]),
        Damaged,
        "general.alignment",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_numbers_that_cannot_be_right(tmp_path: Path, name: str) -> None:
    data, kind, said = HOSTILE[name]
    assert said in refused(tmp_path, data, kind)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (struct.pack("<IQ", TEXT, 2**32), "4294967296 texts of `k`"),
        (struct.pack("<IQ", 0, 2**35), "34359738368 elements of `k`"),
        (struct.pack("<IQQ", TEXT, 1, 2**35), "text 0 of 1 of `k`"),
    ],
)
def test_a_hollow_file_does_not_make_work(tmp_path: Path, payload: bytes, said: str) -> None:
    """A sparse file costs its maker nothing, so its length may not bound what is read."""
    path = tmp_path / "hollow.gguf"
    path.write_bytes(header([key("k", ARRAY, payload)]))
    os.truncate(path, 64 << 30)
    with pytest.raises(Damaged, match=said):
        GgufFile(path)


@pytest.mark.parametrize("value", ["x" * 10**6, "\x1b[2J\n" * 100, "\ud800", "\u202e"])
def test_texts_of_a_file_do_not_fill_or_clear_the_screen(tmp_path: Path, value: str) -> None:
    name = value.encode("utf-8", "surrogatepass")
    file = opened(tmp_path, whole([key("general.architecture", TEXT, ggufs.text(name))]))
    with pytest.raises(UnsupportedArchitecture) as caught:
        recognise(file)
    said = str(caught.value)
    assert len(said) < 1500 and said.isprintable() and "supported: gemma" in said


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(CutShort("a.gguf", "cut short")))
    assert type(error) is CutShort and str(error) == "a.gguf: cut short"


# --- typed getters -------------------------------------------------------------------------------


def test_getters_name_the_key(small: Path) -> None:
    found = GgufFile(small).metadata
    assert found.integer("llama.block_count") == ggufs.LAYERS
    assert found.integer("absent", 5) == 5 and found.text("absent", "x") == "x"
    assert found.integers("llama.block_count", 2) == (ggufs.LAYERS,) * 2
    with pytest.raises(errors.MissingKey, match="the key `absent` is missing"):
        found.real("absent")
    for wrong in (
        lambda: found.text("llama.block_count"),
        lambda: found.integer("general.architecture"),
        lambda: found.integer("llama.attention.layer_norm_rms_epsilon"),
        lambda: found.integer("llama.block_count", least=ggufs.LAYERS + 1),
        lambda: found.flag("llama.block_count"),
        lambda: found.array("llama.block_count"),
        lambda: found.texts("llama.block_count"),
        lambda: found.integers("tokenizer.ggml.tokens", ggufs.TOKENS),
    ):
        with pytest.raises(errors.WrongValue, match="the key `.*` must be"):
            wrong()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_reals_are_finite(tmp_path: Path, value: float) -> None:
    file = opened(tmp_path, whole([key("k", 6, struct.pack("<f", value))]))
    with pytest.raises(errors.WrongValue, match="finite"):
        file.metadata.real("k")


def test_arrays_have_the_length_that_is_asked_for(tmp_path: Path) -> None:
    payload = struct.pack("<IQ3i", 5, 3, 1, -2, 3)
    found = opened(tmp_path, whole([key("k", ARRAY, payload)])).metadata
    assert found.integers("k", 3, least=-9) == (1, -2, 3)
    for count, least in ((2, -9), (3, 0)):
        with pytest.raises(errors.WrongValue, match=r"it is \[1, -2, 3\]"):
            found.integers("k", count, least=least)
