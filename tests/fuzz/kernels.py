"""Kernels: a text may be wrong in any way, and is answered with findings of the language only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

from ferro import catalogue
from ferro.codegen import Config, ConfigError, Target, generate
from ferro.dsl import bounds, language, launch, types
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.ir import Buffer, Kernel, Pointer
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import LaunchError
from tests.fuzz import target as fuzz

DEVICES = (
    Target("simd", 16, "vnni512", "intel", frozenset({"vload_half", "prefetch"})),
    Target("simd", 8, "avx2", "pocl"),
    Target("simt", 16, "dp4a", "", frozenset({"block_read", "vload_half"})),
    Target("simt", 8),
)
SIZES = (0, 1, 3, 32, 33, 512, 2**15, 2**16, 2**30, 2**31 - 1, 2**31, 2**40)
SIZES_OF_TILES = (-(2**40), -1, 0, 1, 3, 16, 2**16, 2**31, 2**63)
SEPARATORS = re.compile(r"(\w+|\s+|[^\w\s])")
WORD = re.compile(r"[^\W\d]\w*")
WORDS = tuple(
    """tl. tl.load( tl.store( tl.block( tl.arange( tl.zeros( tl.full( tl.dot( tl.sum( tl.max(
    tl.chunks( tl.combine( tl.static_range( tl.program_id( tl.cdiv( tl.where( tl.load_block(
    tl.store_block( tl.quantize_i8( tl.broadcast_to( tl.reshape( tl.partials( tl.accumulate(
    tl.join( tl.split( tl.exp( tl.fma( tl.f32 tl.i32 tl.u8 tl.f16 tl.inf tl.nan .to( .T .shape
    .start .stop [None] [:] [...] [0] ( ) [ ] , : = == != < > <= >= + - * / // % & | ^ ~ << >>
    ** @ := -> not and or if else elif for in while def return pass lambda None True False is
    import range( max( min( axis=0 mask= other= 0 -1 1 31 32 2147483647 2147483648 -2147483649
    18446744073709551616 1e400 -0.0 1e-46 0x7fffffff 0b1 1_000 1j 08 07 .5 1. "" 'silu' f"{x}" b""
    "\\x" '''a''' # \\ ; $ ? ! ` é π ° ﬁ ² ٣ 变 \u200b \ufeff \x00 \x0c \x1f \r \udc80 M N K x y acc
    part n m c bias tl kernel self __class__ __globals__ _""".split(" ")
)
WORDS += ("\n", "\n    ", "\n        ", "\t", "\r\n", "\u2028", "\x85", "\\\n")


@dataclass(frozen=True)
class Shaped:
    """An array without memory."""

    shape: tuple[int, ...]
    dtype: Any = None
    format: str | None = None


@cache
def shipped() -> dict[str, KernelDefinition]:
    """Every shipped kernel and inlined function by its name."""
    files = sorted(catalogue.SHIPPED.glob("[!_]*.py"))
    return {e.name: e.definition for file in files for e in catalogue.definitions(file)}


def run(data: bytes) -> None:
    """From a text to OpenCL C for two targets and to a proved launch.

    Raises what no text may cause. A text of an inlined function takes the place of the shipped one
    of its name in kernels that call it.
    """
    source = data.decode("utf-8", "surrogateescape")
    random = Random(crc32(data))
    try:
        definition = KernelDefinition.from_source(source, "mutated.py")
    except CompileError as error:
        _assert_told(error)
        return
    names: dict[str, Any] = {"tl": language, **types.DTYPES}
    for name, known in shipped().items():
        names[name] = KernelDefinition(name, known.file, known.line, known.source, names)
    changed = KernelDefinition(definition.name, "mutated.py", 1, source, names)
    names[definition.name] = changed
    try:
        entry = _caller(changed, names, random) if changed.is_function else changed
        use(entry, random)
    except CompileError as error:
        _assert_told(error)


def _caller(function: KernelDefinition, names: dict[str, Any], random: Random) -> KernelDefinition:
    """A shipped kernel that calls ``function`` itself or through others; else ``function``."""
    reached, before = {function.name}, set[str]()
    while reached != before:
        before = set(reached)
        for name, known in shipped().items():
            if before & set(WORD.findall(known.source)):
                reached.add(name)
    entries = [names[n] for n in sorted(reached & set(shipped())) if not shipped()[n].is_function]
    return random.choice(entries) if entries else function


def use(definition: KernelDefinition, random: Random) -> None:
    """Raises CompileError, LaunchError among them, or what is wrong with Ferro."""
    constants = {
        name: random.choice((*p.choices, *p.choices, random.choice(SIZES_OF_TILES)))
        for name, p in {**definition.meaning, **definition.schedule}.items()
        if random.random() < 0.3 or p.default is None
    }
    optional = [name for name, p in definition.parameters.items() if p.optional]
    absent = [name for name in optional if random.random() < 0.5]
    try:
        kernel = definition.specialise(absent=absent, **constants)
    except CompileError:
        if not constants:
            raise
        kernel = definition.specialise(absent=absent)
    for device in random.sample(DEVICES[:2], 1) + random.sample(DEVICES[2:], 1):
        try:
            generate(kernel, device, _config(random, definition))
        except ConfigError as error:
            assert str(error) and len(str(error)) < 2000
    for _ in range(2):
        try:
            bound = launch.bind(kernel, _arguments(kernel, random))
            bounds.check(kernel, bound.scalars, bound.grid, bound.extents)
        except LaunchError as error:
            _assert_told(error)


def _config(random: Random, definition: KernelDefinition) -> Config:
    group, split = random.choice(((0, 1), (0, 1), (3, 1), (0, 2), (8, 1), (-1, 1), (2**70, 2**70)))
    lanes = random.choice((None, None, None, 2, 4, 32, -1, 2**40))
    labels = random.choice(((), (), ("n",), ("m",), ("nothing",)))
    return Config({}, lanes, labels, split, prefetch=random.random() < 0.5, group=group)


def _arguments(kernel: Kernel, random: Random) -> dict[str, Any]:
    """Arrays whose axes mostly agree, and numbers; sometimes one is left out."""
    size = {f"{e}": random.choice(SIZES) for b in kernel.buffers for e in b.extents}
    usual = random.random() < 0.5
    if usual:
        size = {e: random.choice((1, 3, 33)) for e in size}
    found: dict[str, Any] = {b.name: _shaped(b, size) for b in kernel.buffers}
    for scalar in kernel.scalars:
        if not scalar.implicit:
            found[scalar.name] = random.choice((0, 1, 2, 2**31 - 1, -(2**31), 2**70, 1.5, 1e300))
    if found and random.random() < 0.1:
        found.pop(random.choice(sorted(found)))
    return found


def _shaped(buffer: Buffer, size: dict[str, int]) -> Shaped:
    shape = tuple(size[f"{e}"] for e in buffer.extents)
    if isinstance(buffer, Pointer):
        return Shaped(shape, buffer.dtype.numpy)
    return Shaped(shape, None, buffer.format)


def _assert_told(error: CompileError) -> None:
    assert error.diagnostics and all(d.code.startswith("FER") for d in error.diagnostics)
    assert all(d.message and len(d.message) < 10_000 for d in error.diagnostics)
    str(error).encode("utf-8", "surrogatepass")


# --- changes that keep a text nearly right --------------------------------------------------------


def seeds() -> list[bytes]:
    return [definition.source.encode() for definition in shipped().values()]


def mutate(data: bytes, random: Random) -> bytes:
    """Words are left out, repeated, exchanged or put in, numbers grow, something nests."""
    words = SEPARATORS.findall(data.decode("utf-8", "surrogateescape")) or [" "]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        words = random.choice(_CHANGES)(words, random) or [" "]
    return "".join(words).encode("utf-8", "surrogatepass")


def _places(words: list[str], pattern: str) -> list[int]:
    return [i for i, word in enumerate(words) if re.fullmatch(pattern, word)]


def _dropped(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words))
    return words[:at] + words[at + random.choice((1, 1, 1, 2, 5)) :]


def _inserted(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words) + 1)
    return [*words[:at], random.choice(WORDS), *words[at:]]


def _replaced(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words))
    return [*words[:at], random.choice(WORDS), *words[at + 1 :]]


def _renamed(words: list[str], random: Random) -> list[str]:
    """One name in the place of another, of this kernel or of the others."""
    places = _places(words, r"[^\W\d]\w*")
    if len(places) < 2:
        return words
    at, other = random.sample(places, 2)
    name = words[other] if random.random() < 0.7 else random.choice(sorted(shipped()))
    return [*words[:at], name, *words[at + 1 :]]


def _numbered(words: list[str], random: Random) -> list[str]:
    places = _places(words, r"\d+")
    if not places:
        return words
    at = random.choice(places)
    number = random.choice((0, 1, 2, 3, 7, 8, 31, 33, *fuzz.NUMBERS, 10**400, -1, -(2**31)))
    text = str(number) if random.random() < 0.8 else "9" * random.choice((20, 400, 5000))
    return [*words[:at], text, *words[at + 1 :]]


def _nested(words: list[str], random: Random) -> list[str]:
    """A name or number inside of brackets, signs, calls or subscripts, some or many."""
    places = _places(words, r"\w+")
    if not places:
        return words
    at, levels = random.choice(places), random.choice((1, 2, 8, 60, 98, 101, 2000))
    before, behind = random.choice(
        (("(", ")"), ("-", ""), ("~", ""), ("not ", ""), ("tl.exp(", ")"), ("", "[None]"))
        + (("[", "]"), ("(", ",)"), ("tl.where(True, ", ", 0)"), ("1 + (", ")"), ("", ".T"))
    )
    return [*words[:at], before * levels, words[at], behind * levels, *words[at + 1 :]]


def _lines(words: list[str], random: Random) -> list[str]:
    """A line is repeated, moved or indented otherwise, or put under a head of its own."""
    lines = "".join(words).split("\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    margin = " " * (len(lines[at]) - len(lines[at].lstrip()))
    heads = (
        "for i in range(%d):",
        "for i in tl.static_range(%d):",
        "if %d:",
        "while %d:",
        "def %d:",
    )
    change = random.randrange(4)
    if change == 0:
        lines[other:other] = [lines[at]] * random.choice((1, 2, 50))
    elif change == 1:
        lines[other], lines[at] = lines[at], lines[other]
    elif change == 2:
        lines[at] = " " * random.randrange(9) + lines[at].lstrip()
    else:
        head = random.choice(heads) % random.choice((0, 1, 3, 4096, 2**31, 2**70))
        lines[at : at + 1] = [margin + head, "    " + lines[at]]
    return SEPARATORS.findall("\n".join(lines))


def _calls_itself(words: list[str], random: Random) -> list[str]:
    """Another name is the function's own: it calls itself, at once or through the others."""
    heads = [i for i in _places(words, "def") if i + 2 < len(words)]
    calls = [i for i in _places(words, r"\(") if i > 3 and WORD.fullmatch(words[i - 1])][1:]
    if not heads or not calls:
        return words
    at = random.choice(calls) - 1
    tail = at - 2 if words[at - 1] == "." else at
    return [*words[:tail], words[heads[0] + 2], *words[at + 1 :]]


_CHANGES = (_dropped, _inserted, _replaced, _renamed, _renamed, _numbered, _numbered)
_CHANGES += (_nested, _lines, _calls_itself)


TARGET = fuzz.Target(run, seeds, mutate, tuple(w for w in WORDS if w.isascii()))
