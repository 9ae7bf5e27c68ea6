"""Model files: everything that is done with one on the way to a device."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random

from ferro.commands.inspect import describe, text
from ferro.models import weights
from ferro.models.architectures import recognise
from ferro.models.errors import ModelError
from ferro.models.gguf import GgufFile
from ferro.models.gguf_cursor import Texts
from ferro.models.tokenizer import Tokenizer
from ferro.report import to_json
from tests.fuzz.target import NUMBERS, Target
from tests.models import ggufs
from tests.models.ggufs import entry, key, whole
from tests.models.ggufs import text as written

# value types that are numbers, as the struct module writes them
FORMS = [*enumerate("BbHhIif?"), (10, "Q"), (11, "q"), (12, "d")]
SIZES = {kind: struct.calcsize(form) for kind, form in FORMS}
TEXT, ARRAY = 8, 9


@lru_cache(maxsize=None)
def seeds() -> list[bytes]:
    """Models of every architecture, and a file with values of every type."""
    with tempfile.TemporaryDirectory() as folder:
        names = [("llama", "Q4_1"), ("lfm2", "Q8_0"), ("gemma3", "F16")]
        names += [
            ("gemma-embedding", "F32"),
            ("gemma-embedding2", "BF16"),
            ("lfm2 with a decision head", "Q4_0"),
        ]
        paths = [ggufs.model(Path(folder, name), name, kind) for name, kind in names]
        found = [path.read_bytes() for path in paths]
    numbers = [key(f"n{kind}", kind, bytes(8)[: SIZES[kind]]) for kind, _ in FORMS]
    arrays = [key(f"a{kind}", 9, struct.pack("<IQ", kind, 2) + bytes(16)) for kind, _ in FORMS[-3:]]
    texts = [key("t", 8, written("é")), key("ts", 9, struct.pack("<IQ", 8, 2) + written("a") * 2)]
    tensors = [entry("x", [32, 2], 8), entry("y", [4], 0, 96)]
    return [*found, whole([*numbers, *arrays, *texts], tensors, 128)]


def run(data: bytes) -> None:
    """Raises what is no ModelError, and AssertionError for one that does not name the file."""
    with tempfile.NamedTemporaryFile(suffix=".gguf", dir=_memory()) as file:
        file.write(data)
        file.flush()
        try:
            use(Path(file.name))
        except ModelError as error:
            assert str(error).startswith(file.name) and error.exit_code == 2
            assert len(str(error)) < 2000 and str(error).isprintable()


def use(path: Path) -> None:
    """Everything that is done with a file on the way to a device. Raises ModelError."""
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
    try:
        Tokenizer(file.metadata).encode("a <1> é")
    except ModelError:
        pass
    for name, info in file.tensors.items():
        try:
            weights.f32(file, name)
            if weights.is_matrix(info):
                weights.q8(file, name)
            if weights.is_matrix(info) and weights.is_small(file, [name]):
                weights.q4(file, name)
        except ModelError:
            continue


def _memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# --- changes that keep a file nearly right --------------------------------------------------------


@dataclass
class Layout:
    """Where a header's numbers (place, size) and its entries (start, stop) are."""

    numbers: list[tuple[int, int]] = field(default_factory=list)
    keys: list[tuple[int, int]] = field(default_factory=list)
    tensors: list[tuple[int, int]] = field(default_factory=list)
    texts: list[tuple[int, int]] = field(default_factory=list)


class Walk:
    """Walks a header as far as it makes sense."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.found = data, 4, Layout()

    def layout(self) -> Layout:
        try:
            self._number(4)
            tensors, keys = self._number(8), self._number(8)
            for _ in range(min(keys, 1000)):
                self._entry(self.found.keys, self._key)
            for _ in range(min(tensors, 1000)):
                self._entry(self.found.tensors, self._tensor)
        except ValueError:
            pass
        return self.found

    def _entry(self, entries: list[tuple[int, int]], walk: Callable[[], None]) -> None:
        start = self.at
        walk()
        entries.append((start, self.at))

    def _number(self, size: int) -> int:
        if self.at + size > len(self.data):
            raise ValueError("past the end")
        self.found.numbers.append((self.at, size))
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def _text(self) -> None:
        start = self.at
        size = self._number(8)
        self.at += size
        if self.at > len(self.data):
            raise ValueError("past the end")
        self.found.texts.append((start, self.at))

    def _key(self) -> None:
        self._text()
        self._value(self._number(4))

    def _value(self, kind: int) -> None:
        if kind == TEXT:
            self._text()
        elif kind == ARRAY:
            inner, count = self._number(4), self._number(8)
            for _ in range(min(count, 1000)):
                self._value(inner)
        elif kind in SIZES:
            self._number(SIZES[kind])
        else:
            raise ValueError("no such type")

    def _tensor(self) -> None:
        self._text()
        for _ in range(min(self._number(4), 8)):
            self._number(8)
        self._number(4)
        self._number(8)


def mutate(data: bytes, random: Random) -> bytes:
    """One number, text or entry of the header is changed, left out, repeated or put elsewhere."""
    layout = Walk(data).layout()
    change = random.choice((_number, _number, _text, _entries, _entries, _cut))
    return change(data, layout, random)


def _number(data: bytes, layout: Layout, random: Random) -> bytes:
    if not layout.numbers:
        return data
    at, size = random.choice(layout.numbers)
    now = int.from_bytes(data[at : at + size], "little")
    value = random.choice(
        (now + 1, now - 1, now * 2, random.choice(NUMBERS), random.getrandbits(64))
    )
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


def _text(data: bytes, layout: Layout, random: Random) -> bytes:
    """A text of the file in the place of another."""
    if not layout.texts:
        return data
    (start, stop), (first, last) = random.choice(layout.texts), random.choice(layout.texts)
    return data[:start] + data[first:last] + data[stop:]


def _entries(data: bytes, layout: Layout, random: Random) -> bytes:
    entries, place = random.choice(((layout.keys, 16), (layout.tensors, 8)))
    if not entries:
        return data
    (start, stop), (other, _) = random.choice(entries), random.choice(entries)
    count = int.from_bytes(data[place : place + 8], "little")
    moved, count = data[start:stop], count + 1
    if random.random() < 0.5:
        moved, count = b"", count - 2
        made = data[:start] + data[stop:]
    else:
        made = data[:other] + moved + data[other:]
    if random.random() < 0.2:
        return made
    return made[:place] + (count % (1 << 64)).to_bytes(8, "little") + made[place + 8 :]


def _cut(data: bytes, layout: Layout, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


TARGET = Target(run, seeds, mutate)
