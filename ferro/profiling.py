"""Where the time of a language model's passes goes: each launch beside what the device can do.

A round takes a sample of each limit, then a prefill and some steps of decoding with and without
events. Times of launches are medians over all passes of one kind; a share is the median over rounds
of the ratio within one, as in ``ferro.speed``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ferro import work
from ferro.dsl import ir
from ferro.dsl.launch import Binding, bind
from ferro.models.passes import Piece
from ferro.neighbours import Watch
from ferro.runtime.limits import samplers
from ferro.runtime.plan import Launched
from ferro.runtime.profiler import Timing

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel

MOST_READ = 1 << 16  # bytes of an input that tells lengths
STEPS = 8  # of decoding, in a round
COPIES = ("read", "write")


@dataclass(frozen=True)
class Launch:
    """One launch of a pass: its kernel, the sizes that tell it from others of that kernel, the
    bytes it has to move and its operations (None where they cannot be counted)."""

    kernel: str
    sizes: dict[str, int]
    bytes: int
    int8_operations: int | None
    f32_operations: int | None
    commands: int

    def amounts(self) -> dict[str, int]:
        """What there is to do, by the kind of limit."""
        every = {"read": self.bytes, "dot": self.int8_operations, "f32": self.f32_operations}
        return {kind: amount for kind, amount in every.items() if amount}


@dataclass(frozen=True)
class Pass:
    """One pass with events: seconds of each launch, when it began and ended on the device's clock,
    and seconds between the end of a command and the start of the next."""

    seconds: list[float]
    spans: list[tuple[float, float]]
    gaps: list[float]


@dataclass(frozen=True)
class Plain:
    """One pass without events: seconds of it, and of this thread's processor time."""

    seconds: float
    python: float


@dataclass
class Phase:
    """All passes of one kind: "prefill" of ``tokens`` at once, or "decode" of one after ``depth``
    others. ``limits`` are what the device gave in each round, units a second."""

    kind: str
    tokens: int
    depth: int
    launches: list[Launch] = field(default_factory=list)
    passes: list[list[Pass]] = field(default_factory=list)
    plain: list[Plain] = field(default_factory=list)
    limits: list[Mapping[str, float]] = field(default_factory=list)
    others: list[float | None] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """The launches by kernel and sizes, those that take most time first."""
        groups: dict[tuple[str, str], list[int]] = {}
        for number, launch in enumerate(self.launches):
            groups.setdefault((launch.kernel, str(launch.sizes)), []).append(number)
        rows = [self._row(numbers) for numbers in groups.values()]
        return sorted(rows, key=lambda row: -row.seconds)

    def _row(self, numbers: list[int]) -> Row:
        first = self.launches[numbers[0]]
        by_round = [
            median(sum(one.seconds[n] for n in numbers) for one in taken) for taken in self.passes
        ]
        seconds = median(by_round)
        total = {kind: amount * len(numbers) for kind, amount in first.amounts().items()}
        shares = {
            kind: median(
                amount / taken / limits[kind]
                for taken, limits in zip(by_round, self.limits, strict=True)
            )
            for kind, amount in total.items()
            if seconds and all(kind in limits for limits in self.limits)
        }
        rates = {kind: amount / seconds for kind, amount in total.items() if seconds}
        return Row(first, len(numbers), seconds, rates, shares)

    @property
    def seconds(self) -> float:
        """Of a pass without events."""
        return median(one.seconds for one in self.plain)

    @property
    def python(self) -> float:
        """Processor time of this thread in a pass without events."""
        return median(one.python for one in self.plain)

    @property
    def busy(self) -> float:
        """Seconds of all launches of a pass."""
        return median(sum(one.seconds) for taken in self.passes for one in taken)

    @property
    def gaps(self) -> float:
        """Seconds between the launches of a pass with events."""
        return median(sum(one.gaps) for taken in self.passes for one in taken)

    @property
    def gap(self) -> float:
        """Seconds between two launches."""
        return median(gap for taken in self.passes for one in taken for gap in one.gaps or [0.0])

    def limit(self, kind: str) -> float | None:
        """What the device gave, units a second."""
        found = [limits[kind] for limits in self.limits if kind in limits]
        return median(found) if found else None


@dataclass(frozen=True)
class Row:
    """All launches of one kernel and sizes in a pass: their number, seconds of all together, rates
    (units a second) and shares of the limits by kind."""

    launch: Launch
    count: int
    seconds: float
    rates: dict[str, float]
    shares: dict[str, float]

    @property
    def bound(self) -> str:
        """The kind of limit that it is nearest to, or ""."""
        return max(self.shares, key=lambda kind: self.shares[kind], default="")


def profile(
    model: LanguageModel,
    prefill: int,
    depth: int,
    rounds: int,
    tell: Callable[[str], object] = lambda _: None,
) -> list[Phase]:
    """Prefill of ``prefill`` tokens at once (0: none), decode of one after ``depth`` others.

    ``tell`` hears of every phase of a round. Raises whatever passes of the model raise.
    """
    phases = [Phase("decode", 1, depth)]
    if prefill:
        phases.insert(0, Phase("prefill", prefill, 0))
    for phase in phases:
        _warm(model, phase)
    kinds = {kind for phase in phases for launch in phase.launches for kind in launch.amounts()}
    beside = samplers(model.device, kinds=sorted(kinds))
    for _ in range(rounds):
        limits = {kind: sample() for kind, sample in beside.items()}
        for phase in phases:
            _round(model, phase, limits)
            tell(phase.kind)
    return phases


def most_tokens(depth: int) -> int:
    """The length of the context that a profile of decoding takes."""
    return depth + 2 * STEPS + 1


def _warm(model: LanguageModel, phase: Phase) -> None:
    """Record the plan and read what it launches."""
    phase.launches = launches(model, phase.tokens, phase.depth)


def launches(model: LanguageModel, tokens: int, depth: int) -> list[Launch]:
    """What a pass of ``tokens`` after ``depth`` others launches; runs it once."""
    _fill(model, depth)
    piece = Piece(0, depth, _tokens(model, tokens))
    model.forward([piece])
    held = _held(model, piece.end)
    return [_launch(one, held) for one in model.plan_of([piece]).launches]


def _fill(model: LanguageModel, depth: int) -> None:
    """Make the slot hold ``depth`` tokens."""
    for start in range(0, depth, model.most_rows):
        count = min(model.most_rows, depth - start)
        model.forward([Piece(0, start, _tokens(model, count), 0)])


def _piece(model: LanguageModel, phase: Phase, number: int = 0) -> Piece:
    """What pass ``number`` after the context was filled takes: the same prefill, or one token
    more."""
    at = phase.depth + number if phase.kind == "decode" else 0
    return Piece(0, at, _tokens(model, phase.tokens))


def _tokens(model: LanguageModel, count: int) -> tuple[int, ...]:
    """Tokens without a meaning."""
    return tuple((7919 * i + 13) % len(model.tokenizer) for i in range(count))


def _round(model: LanguageModel, phase: Phase, limits: Mapping[str, float]) -> None:
    _fill(model, phase.depth)
    watch, steps = Watch(), STEPS if phase.kind == "decode" else 1
    pieces = [_piece(model, phase, number) for number in range(2 * steps)]
    phase.plain += [_plain(model, piece) for piece in pieces[:steps]]
    phase.passes.append([_with_events(model, phase, piece) for piece in pieces[steps:]])
    phase.limits.append(limits)
    phase.others.append(watch.others())


def _plain(model: LanguageModel, piece: Piece) -> Plain:
    began, python = time.perf_counter(), time.thread_time()
    model.forward([piece])
    return Plain(time.perf_counter() - began, time.thread_time() - python)


def _with_events(model: LanguageModel, phase: Phase, piece: Piece) -> Pass:
    with model.device.profile() as profiler:
        model.forward([piece])
    timings = [timing for timing in profiler.timings() if timing.name not in COPIES]
    return by_launch(timings, [launch.commands for launch in phase.launches])


def by_launch(timings: Sequence[Timing], commands: Sequence[int]) -> Pass:
    """The commands of a pass as launches of so many ``commands`` each."""
    seconds, spans, at = [], [], 0
    for count in commands:
        own = timings[at : at + count]
        at += count
        seconds.append(sum(timing.seconds for timing in own))
        spans.append((own[0].start, own[-1].end) if own else (0.0, 0.0))
    gaps = [max(0.0, b.start - a.end) for a, b in pairwise(timings)]
    return Pass(seconds, spans, gaps)


# ------------------------------------------------------------------------------ what is launched


def _held(model: LanguageModel, tokens: int) -> dict[int, float]:
    """Which part of a buffer there is to read, by its identity: of a cache the rows that are
    filled."""
    caches = [buffer for layer in model.cache_layers for buffer in layer.values()]
    rows = model.context * model.slots
    return {id(buffer): tokens / rows for buffer in caches if buffer.shape[0] == rows}


def _launch(launched: Launched, held: Mapping[int, float]) -> Launch:
    kernel = launched.kernel
    bound = bind(kernel, launched.arguments)
    told = _told(kernel, bound)
    most = {
        name: round(held[id(buffer)] * buffer.nbytes)
        for name, buffer in bound.buffers.items()
        if id(buffer) in held
    }
    return Launch(
        kernel=kernel.name,
        sizes=dict(bound.key),
        bytes=work.moved(kernel, told, most),
        int8_operations=work.operations(kernel, told, ("dot_i8",)),
        f32_operations=work.operations(kernel, told, ("dot",)),
        commands=launched.commands,
    )


def _told(kernel: ir.Kernel, bound: Binding) -> Binding:
    """The binding with the contents of small integer inputs, which tell the lengths of loops."""

    def contents(parameter: Any) -> Any:
        buffer = bound.buffers[parameter.name]
        plain = isinstance(parameter, ir.Pointer) and parameter.dtype.is_int
        if not plain or parameter.access != "in" or buffer.nbytes > MOST_READ:
            return buffer
        return np.asarray(buffer.read())

    buffers = {parameter.name: contents(parameter) for parameter in kernel.buffers}
    return Binding(buffers, bound.scalars, bound.grid, bound.extents, bound.key)
