"""Jobs: what a request asks of the engine, and what the engine tells about it.

A job is made in the thread of its request and lives in the engine's. They share no more than the
flag that cancels it and the listener, which the engine calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ferro.models.completion import Finish, Options
from ferro.models.packing import Input
from ferro.models.sampler import Floats, Mask
from ferro.serve.logprobs import Likely


class Guide(Protocol):
    """Steers one completion, token by token."""

    def forced(self) -> int | None:
        """The next token, if there is no choice."""

    def allowed(self) -> Mask | None:
        """The tokens [vocabulary] of which the next one may be; None for all."""

    def took(self, token: int) -> None:
        """Take note of the token that became the next one."""


@dataclass(frozen=True)
class Task:
    """Completions of one prompt: ``choices`` of them, numbered from ``options.stream`` on.

    ``likely`` is how many of the likeliest tokens are told of with each (None: not even its own
    likelihood). ``guide`` makes what steers a completion. With ``cached`` the prefix cache is read
    and written: ``boundaries`` are the lengths of beginnings worth keeping, ``tail`` says that the
    whole prompt is one. ``seconds`` is how long the job may take, the wait among it.
    """

    prompt: tuple[int, ...]
    options: Options
    choices: int = 1
    likely: int | None = None
    guide: Callable[[], Guide] | None = None
    cached: bool = True
    boundaries: tuple[int, ...] = ()
    tail: bool = False
    seconds: float | None = None

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True)
class Encoding:
    """Inputs that an encoder is to compute, each in whatever pass has room for it."""

    inputs: tuple[Input, ...]
    seconds: float | None = None
    choices: int = 1

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.inputs))


@dataclass(frozen=True)
class Token:
    """A token of a completion and the text that can be shown since the one before."""

    choice: int
    id: int
    text: str
    likely: Likely | None = None


@dataclass(frozen=True)
class Ended:
    """A completion is done."""

    choice: int
    finish: Finish


@dataclass(frozen=True)
class Encoded:
    """An encoding is done: the ``rows`` float32 [1 or wanted rows, ...] of each of its inputs."""

    choice: int
    rows: list[Floats]


@dataclass(frozen=True)
class Failed:
    """The job is over without its end; ``reason`` is a word for scripts."""

    reason: str
    message: str


Event = Token | Ended | Encoded | Failed


class Asking(Protocol):
    """What every task tells of itself."""

    @property
    def choices(self) -> int:
        """How many events end it."""

    @property
    def seconds(self) -> float | None:
        """How long it may take."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens that came in."""


Asked = TypeVar("Asked", bound=Asking)


@dataclass
class Clock:
    """When things happened to a job, in seconds of ``time.perf_counter``, and its tokens."""

    made: float = field(default_factory=time.perf_counter)
    started: float | None = None
    first: float | None = None
    ended: float | None = None
    cached_tokens: int = 0
    tokens: int = 0

    def timings(self, prompt_tokens: int) -> Mapping[str, float | int]:
        """Counts and rates by llama.cpp's names."""
        now = time.perf_counter()
        ended = self.ended or now
        first = self.first or ended
        prompt_ms = 1000 * (first - (self.started or first))
        predicted_ms = 1000 * (ended - first)
        computed = prompt_tokens - self.cached_tokens
        steps = max(self.tokens - 1, 0)
        return {
            "cache_n": self.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": _each(prompt_ms, computed),
            "prompt_per_second": _rate(computed, prompt_ms),
            "predicted_n": self.tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": _each(predicted_ms, steps),
            "predicted_per_second": _rate(steps, predicted_ms),
        }


class Job(Generic[Asked]):
    """A task under way. ``listener`` hears its events in the engine's thread: it must be quick."""

    def __init__(self, task: Asked, listener: Callable[[Event], Any]) -> None:
        self.task, self.clock = task, Clock()
        self._listener = listener
        self.cancelled = False
        self.open = set(range(task.choices))

    @property
    def over(self) -> bool:
        return not self.open

    @property
    def late(self) -> bool:
        """Whether it has taken longer than it may."""
        seconds = self.task.seconds
        return seconds is not None and time.perf_counter() - self.clock.made > seconds

    def cancel(self) -> None:
        """Give it up, from any thread: the engine frees what it holds after the pass under way."""
        self.cancelled = True

    def tell(self, event: Event) -> None:
        """For the engine: let the listener know, unless nobody listens any more."""
        if isinstance(event, Ended | Encoded):
            self.open.discard(event.choice)
        elif isinstance(event, Failed):
            self.open.clear()
        if self.over:
            self.clock.ended = time.perf_counter()
        if not self.cancelled:
            self._listener(event)


def _each(milliseconds: float, count: int) -> float:
    return milliseconds / count if count else 0.0


def _rate(count: int, milliseconds: float) -> float:
    return 1000 * count / milliseconds if milliseconds else 0.0
