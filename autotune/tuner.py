"""Tries the configs of one problem within a budget of seconds, and keeps what it finds.

First every candidate is built and its bits compared with the interpreter's, each in a process that
may die. Then those that passed are timed in turns, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles

from autotune.candidates import Candidate, Skipped, candidates, preset
from autotune.child import Child, Lost
from autotune.messages import Checked, Job
from autotune.problem import Problem
from ferro.arguments import ArgumentsError
from ferro.codegen.program import Config
from ferro.runtime.device import Device
from ferro.runtime.trials import Trial, Trials, winner

TIMEOUT = 60.0
ROUNDS = 15
LEAST_ROUNDS = 3
TURN = 0.05  # seconds of launches in one turn
CHECKING = 0.7  # the share of the budget after which no further candidate is built
# After so many rounds, configs this many times slower than the fastest are timed no more.
GIVE_UP = {1: 3.0, 4: 1.5, 8: 1.15}

Report = Callable[[str], None]


@dataclass(frozen=True)
class Tuning:
    """What became of one problem. ``left`` are the configs that the budget left to another run."""

    problem: Problem
    tried: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]
    left: tuple[Config, ...]
    known: int
    winner: Trial | None

    @property
    def failures(self) -> dict[str, list[Trial]]:
        """Those of this run that did not work, by reason."""
        found: dict[str, list[Trial]] = {}
        for trial in self.tried:
            if trial.outcome != "timed":
                found.setdefault(f"{trial.outcome}: {trial.reason}", []).append(trial)
        return found


@dataclass(eq=False)
class Turns:
    """The times of one candidate, a list for each round."""

    candidate: Candidate
    rounds: list[list[float]] = field(default_factory=list)
    given_up: bool = False

    @property
    def all(self) -> list[float]:
        return [seconds for turn in self.rounds for seconds in turn]

    @property
    def best(self) -> float:
        return min(self.all)

    @property
    def enough(self) -> bool:
        """True if its times say something: an interrupted run may have taken too few."""
        return self.given_up or len(self.rounds) >= LEAST_ROUNDS


def tune(
    problem: Problem,
    device: Device,
    trials: Trials,
    budget: float,
    report: Report = lambda text: None,
    timeout: float = TIMEOUT,
) -> Tuning:
    """Try what is not known yet, for about ``budget`` seconds. ``trials`` is added to and saved.

    ``report`` hears what is being tried. Raises CompileError and ArgumentsError for a kernel or
    sizes that make no launch.
    """
    if problem.binding(problem.default).empty:
        raise ArgumentsError(f"{problem}: nothing to run, a size is 0")
    run = _Run(problem, device, trials, time.monotonic() + budget, report)
    started = time.monotonic()
    run.plan()
    if run.pending:
        job = Job(
            device.info.identity, timeout, problem.target, problem.arguments, problem.expected()
        )
        with Child(job, 2 * timeout) as child:
            try:
                run.check(child, started + CHECKING * budget)
                run.time(child)
            finally:
                run.keep()
    return run.result()


class _Run:
    def __init__(
        self, problem: Problem, device: Device, trials: Trials, deadline: float, report: Report
    ) -> None:
        self.problem, self.device, self.trials = problem, device, trials
        self.deadline, self.report = deadline, report
        self.known = trials.at(problem.place)
        self.pending: list[Candidate] = []
        self.again: list[Candidate] = []
        self.skipped: list[Skipped] = []
        self.tried: list[Trial] = []
        self.turns: list[Turns] = []

    def plan(self) -> None:
        """Sort the space into what is to be tried, what is timed once more, and what is not."""
        best = winner(self.known.values())
        for found in candidates(self.problem, self.device):
            if isinstance(found, Skipped):
                self.skipped.append(found)
                continue
            before = self.known.get(found.name)
            if before is None or before.program != found.program or before.outcome == "failed":
                self.pending.append(found)
            elif before.outcome == "timed" and (
                found.is_default or (best is not None and found.name == best.name)
            ):
                self.again.append(found)

    def check(self, child: Child, until: float) -> None:
        """Build and compare: what is timed again first, then what is new, while there is time."""
        waiting = [*self.again, *self.pending]
        given = preset(self.problem, self.device)
        while waiting and (
            time.monotonic() < until or not self.turns or waiting[0].config == given
        ):
            candidate = waiting.pop(0)
            self.report(f"{candidate.name}: building")
            if candidate in self.pending:
                self.pending.remove(candidate)
            trial = self.failure(candidate, child)
            if trial is None:
                self.turns.append(Turns(candidate))
            else:
                self.record(trial)

    def failure(self, candidate: Candidate, child: Child) -> Trial | None:
        """None for a candidate that may be timed."""
        try:
            found = child.check(candidate)
        except Lost as error:
            return self.trial(candidate, "lost", str(error))
        if found.failure:
            return self.trial(candidate, "failed", found.failure)
        if any(found.differing.values()):
            return self.trial(candidate, "wrong", differing(found))
        return None

    def time(self, child: Child) -> None:
        """Rounds over all that passed, until the budget is spent or enough is known."""
        for number in range(1, ROUNDS + 1):
            if number > LEAST_ROUNDS and time.monotonic() > self.deadline:
                return
            for turns in [t for t in self.turns if not t.given_up]:
                self.report(f"{turns.candidate.name}: timing, round {number}")
                self.take_turn(turns, child)
            self.give_up(number)
            if len([t for t in self.turns if not t.given_up]) < 2 and number >= LEAST_ROUNDS:
                return

    def take_turn(self, turns: Turns, child: Child) -> None:
        candidate = turns.candidate
        try:
            failure = None if child.ready(candidate) else self.failure(candidate, child)
            if failure is None:
                turns.rounds.append(child.time(candidate, TURN))
                return
        except Lost as error:
            failure = self.trial(candidate, "lost", str(error))
        self.turns.remove(turns)
        self.record(failure)

    def give_up(self, number: int) -> None:
        """By each one's best launch: that a neighbour was busy in its turn must not count."""
        limit = GIVE_UP.get(number)
        if limit is None or not self.turns:
            return
        fastest = min(turns.best for turns in self.turns)
        for turns in self.turns:
            turns.given_up |= turns.best > limit * fastest and turns is not self.base

    @property
    def base(self) -> Turns:
        """The default's turns; if it did not work, those of the first that did."""
        return next((t for t in self.turns if t.candidate.is_default), self.turns[0])

    def keep(self) -> None:
        """Record the times that were taken, and save. What was timed too little is tried again."""
        for turns in self.turns:
            if turns.enough and self.base.enough:
                self.record(self.timed(turns))
        self.trials.save()

    def timed(self, turns: Turns) -> Trial:
        times = turns.all
        return self.trial(
            turns.candidate,
            "timed",
            seconds=median(times),
            relative=relative(turns.rounds, self.base.rounds),
            spread=spread(times),
            launches=len(times),
        )

    def trial(self, candidate: Candidate, outcome: str, reason: str = "", **times: float) -> Trial:
        place = self.problem.place
        return Trial(
            kernel=place.kernel,
            target=place.target,
            sizes=dict(self.problem.sizes),
            config=candidate.config,
            program=candidate.program,
            outcome=outcome,
            reason=reason,
            is_default=candidate.is_default,
            **times,  # type: ignore[arg-type]
        )

    def record(self, trial: Trial) -> None:
        self.tried.append(trial)
        self.trials.add(trial)
        if trial.outcome == "lost":
            self.trials.save()

    def result(self) -> Tuning:
        return Tuning(
            problem=self.problem,
            tried=tuple(self.tried),
            skipped=tuple(self.skipped),
            left=tuple(candidate.config for candidate in self.pending),
            known=len(self.known),
            winner=self.trials.winner(self.problem.place),
        )


def differing(found: Checked) -> str:
    counts = [f"{count} elements of {name}" for name, count in found.differing.items() if count]
    return f"{', '.join(counts)} differ from the interpreter's"


def relative(own: list[list[float]], base: list[list[float]]) -> float:
    """The median over rounds of the ratio of two configs' times in one round."""
    return median(median(a) / median(b) for a, b in zip(own, base, strict=False))


def spread(times: list[float]) -> float:
    """The distance between quartiles as a share of the median."""
    if len(times) < 2:
        return 0.0
    low, middle, high = quantiles(times, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
