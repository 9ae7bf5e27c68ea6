"""An HTML page of what was tried on a device: a chart for each kernel and size, no other files."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from jinja2 import Environment, FileSystemLoader, select_autoescape

from autotune.candidates import Skipped
from ferro.codegen.program import Config
from ferro.runtime.trials import Place, Trial, Trials, winner

WIDTH = 420
SLOWEST = 4.0  # bars end here


@dataclass(frozen=True)
class Bar:
    """One timed config. ``low`` to ``high`` is where the middle half of its launches lies; an
    ``old`` one had another program, and its new one is not timed yet."""

    trial: Trial
    length: float
    low: float
    high: float
    cut: bool
    wins: bool
    old: bool


@dataclass(frozen=True)
class Chart:
    """One kernel on one target for one bucket of sizes."""

    place: Place
    sizes: str
    bars: list[Bar]
    default: float
    winner: Trial | None
    failures: dict[str, list[Trial]]
    skipped: dict[str, int]
    left: tuple[Config, ...]


@dataclass(frozen=True)
class Untried:
    """What a run did not try of one place: configs of no use, and those the budget left over."""

    skipped: tuple[Skipped, ...] = ()
    left: tuple[Config, ...] = ()


def page(trials: Trials, run: Mapping[Place, Untried]) -> str:
    """The report of a run as HTML; of all that is known, if ``run`` is empty."""
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, autoescape=select_autoescape(default=True))
    environment.globals.update(width=WIDTH)
    tried = [place for place in trials.places() if not run or place in run]
    charts = [chart(trials, place, run.get(place, Untried())) for place in tried]
    template = environment.get_template("report.html.jinja")
    return template.render(
        charts=charts,
        device=trials.device,
        made=time.strftime("%Y-%m-%d %H:%M"),
        gained=gained(each.winner for each in charts),
    )


def gained(winners: Iterable[Trial | None]) -> str:
    """What the winners of launches gained over their kernels' defaults, in words; "" for none."""
    ratios = [trial.relative for trial in winners if trial is not None]
    if not ratios:
        return ""
    faster = [1 / ratio for ratio in ratios if ratio < 1]
    told = f"{len(ratios)} launches, {len(faster)} of them faster than by their default"
    if faster:
        told += f": {median(faster):.2f} times in the middle, {max(faster):.2f} at most"
    mean = math.exp(fmean(map(math.log, ratios)))
    return f"{told}; together {mean:.2f} of the defaults' times (geometric mean)"


def chart(trials: Trials, place: Place, untried: Untried) -> Chart:
    waiting = {str(config) for config in untried.left}
    found = list(trials.at(place).values())
    best = winner(found)
    timed = sorted((t for t in found if t.outcome == "timed"), key=lambda t: t.relative)
    slowest = min(SLOWEST, max((t.relative for t in timed), default=1.0))
    return Chart(
        place=place,
        sizes=" ".join(f"{n}={v}" for n, v in sorted(found[0].sizes.items())),
        bars=[bar(trial, slowest, trial is best, trial.name in waiting) for trial in timed],
        default=WIDTH / slowest,
        winner=best,
        failures=by_reason(found),
        skipped=counts(untried.skipped),
        left=untried.left,
    )


def bar(trial: Trial, slowest: float, wins: bool, old: bool = False) -> Bar:
    def pixels(ratio: float) -> float:
        return round(WIDTH * min(ratio, slowest) / slowest, 1)

    half = trial.relative * trial.spread / 2
    return Bar(
        trial,
        pixels(trial.relative),
        pixels(max(0.0, trial.relative - half)),
        pixels(trial.relative + half),
        trial.relative > slowest,
        wins,
        old,
    )


def by_reason(trials: list[Trial]) -> dict[str, list[Trial]]:
    """The trials that did not work, grouped."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.outcome != "timed":
            found.setdefault(f"{trial.outcome}: {trial.reason}", []).append(trial)
    return found


def counts(skipped: tuple[Skipped, ...]) -> dict[str, int]:
    """How many configs were not tried, by kind of reason."""
    found: dict[str, int] = {}
    for config in skipped:
        found[config.kind] = found.get(config.kind, 0) + 1
    return found
