"""Finds the fastest schedule of kernels on a device, within a budget of seconds.

Every config is compared with the interpreter in every bit before it is timed. What was measured is
kept per device and driver; launches take the winner by themselves. Another run goes on where this
one ended.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferro.commands import UsageError, options
from ferro.report import Progress, emit, note, table, to_json

if TYPE_CHECKING:
    from autotune import Problem, Tuning
    from ferro.measure import Request
    from ferro.runtime.device import Device
    from ferro.runtime.trials import Trials

LEAST_BUDGET = 4.0  # seconds for a launch: the default, the shipped winner and some more
BUDGET, WHOLE_BUDGET = 60.0, 170.0  # of named kernels, of all: within 3 minutes with the last build
INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kernels",
        nargs="*",
        metavar="kernel",
        help=f"{options.KERNEL_HELP}; without one, the shipped kernels at their typical sizes",
    )
    parser.add_argument(
        "--budget-s",
        type=float,
        metavar="S",
        help=f"seconds for all (default {BUDGET:.0f}, {WHOLE_BUDGET:.0f} without a kernel)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write an HTML page of this run (with --list: of all that is known)",
    )
    parser.add_argument("--list", action="store_true", help="show what is known; try nothing")
    options.problem_options(parser)
    parser.add_argument("--target", metavar="NAME", help="simd or simt (default: the device's)")
    parser.epilog = "exit code: 1 where a kernel has no config that works, or bits differ"


def run(args: argparse.Namespace) -> int:
    from ferro.runtime.trials import Trials

    if args.budget_s is None:
        args.budget_s = BUDGET if args.kernels else WHOLE_BUDGET
    with options.open_device(args) as device:
        if device.info.kind == "interpreter":
            raise UsageError("the interpreter has no schedules to tune; name an OpenCL device")
        trials = Trials.of(device.info)
        tunings: list[Tuning] = []
        interrupted = not args.list and not collect(tune_all(args, device, trials), tunings)
        listed = listing(trials, device) if args.list else []
    if args.report:
        write_report(Path(args.report), trials, tunings)
    if args.json:
        emit(to_json(listed if args.list else [as_json(t) for t in tunings]))
    else:
        emit(known(listed) if args.list else results(tunings))
    for tuning in tunings:
        complain(tuning)
    if interrupted:
        note("interrupted: what was timed is kept, another run goes on from there")
        return INTERRUPTED
    return 1 if any(is_bad(tuning) for tuning in tunings) else 0


def collect(tunings: Iterable[Tuning], into: list[Tuning]) -> bool:
    """Take each one when it is done; False if Ctrl-C or a termination request ended it early."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for tuning in tunings:
            into.append(tuning)
    except KeyboardInterrupt:
        return False
    finally:
        signal.signal(signal.SIGTERM, before)
    return True


def requests(args: argparse.Namespace, device: Device) -> Iterator[Request]:
    """The launches to tune for. Raises UsageError, CatalogueError."""
    from autotune import shapes
    from ferro.catalogue import find

    if not args.kernels:
        if args.dim or args.set or args.arg:
            raise UsageError("--dim, --set and --arg go with the name of a kernel")
        yield from shapes.requests()
    for name in args.kernels:
        entry = find(name)
        given = args.dim or args.set or args.arg
        usual = [] if given else shapes.typical(entry)
        if usual:
            yield from (shape.request(entry) for shape in usual)
        else:
            if options.constants(args, entry.definition)[1]:
                raise UsageError("--set takes constexprs of meaning; those of schedule are tuned")
            yield options.problem(args, entry.definition)


def tune_all(args: argparse.Namespace, device: Device, trials: Trials) -> Iterator[Tuning]:
    """Tune one problem after the other; each gets an equal share of what is left."""
    from dataclasses import replace

    from autotune import Problem, tune

    target = options.target(args, device)
    problems = [Problem.of(replace(r, target=target), device) for r in requests(args, device)]
    until = time.monotonic() + args.budget_s
    with Progress(round(args.budget_s), "autotune") as progress:
        for number, problem in enumerate(problems):
            left = until - time.monotonic()
            if left <= 0 and number:
                waiting = "; ".join(map(str, problems[number:]))
                note(f"left by the budget: {len(problems) - number} launches ({waiting})")
                return
            share = min(left, max(LEAST_BUDGET, left / (len(problems) - number)))
            yield tune(problem, device, trials, share, teller(progress, problem))


def teller(progress: Progress, problem: Problem) -> Any:
    """Shows what is going on, and how much of the budget is spent."""

    def tell(text: str) -> None:
        spent = int(time.monotonic() - progress.started)
        progress.step(f"{problem}: {text}", max(0, spent - progress.done))

    return tell


def results(tunings: list[Tuning]) -> str:
    columns = ["kernel", "sizes", "winner", "ms", "of default", "tried", "known", "left"]
    from autotune.report import gained

    text = table(columns, [row(tuning) for tuning in tunings])
    return f"{text}\n{gained([tuning.winner for tuning in tunings])}".rstrip()


def row(tuning: Tuning) -> list[object]:
    best = tuning.winner
    return [
        tuning.problem.name,
        sizes(tuning.problem.sizes),
        name(best) if best else "none works",
        best.seconds * 1e3 if best else None,
        f"{best.relative:.2f}" if best else None,
        len(tuning.tried),
        tuning.known,
        len(tuning.left),
    ]


def name(trial: Any) -> str:
    marks = {"default": trial.is_default, "uncertain": trial.uncertain}
    return " ".join([trial.name, *(f"({mark})" for mark, holds in marks.items() if holds)])


def sizes(found: Any) -> str:
    return " ".join(f"{n}={v}" for n, v in sorted(found.items()))


def known(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return "nothing is known for this device yet: `ferro autotune` tunes the shipped kernels"
    return table(list(entries[0]), [list(entry.values()) for entry in entries])


def listing(trials: Trials, device: Device) -> list[dict[str, Any]]:
    """What launches on this device take: winners found here, then shipped ones."""
    from ferro.runtime.configs import shipped
    from ferro.runtime.trials import Place

    found = []
    for place in trials.places():
        best = trials.winner(place)
        found.append(
            {
                "kernel": place.kernel,
                "target": place.target,
                "sizes": str(place),
                "winner": best.name if best else "none works",
                "of default": round(best.relative, 3) if best else None,
                "uncertain": best.uncertain if best else None,
                "from": f"{len(trials.at(place))} trials here",
            }
        )
    for target in device.targets():
        for entry in shipped():
            if entry.serves(device.info, target):
                found.append(
                    {
                        "kernel": entry.kernel,
                        "target": target.name,
                        "sizes": str(Place.of(entry.kernel, target.name, entry.sizes)),
                        "winner": str(entry.config),
                        "of default": None,
                        "uncertain": None,
                        "from": "shipped",
                    }
                )
    return found


def as_json(tuning: Tuning) -> dict[str, Any]:
    best = tuning.winner
    return {
        "kernel": tuning.problem.place.kernel,
        "target": tuning.problem.target.name,
        "sizes": dict(tuning.problem.sizes),
        "winner": best.to_json() if best else None,
        "uncertain": best is not None and best.uncertain,
        "tried": [trial.to_json() for trial in tuning.tried],
        "skipped": [{"config": str(s.config), "reason": s.reason} for s in tuning.skipped],
        "known": tuning.known,
        "left": [str(config) for config in tuning.left],
    }


def complain(tuning: Tuning) -> None:
    """Say what did not work, one line for each reason, and what the budget left."""
    for reason, trials in tuning.failures.items():
        names = "; ".join(trial.name for trial in trials)
        note(f"{tuning.problem}: {len(trials)} {reason} ({names})")
    if tuning.winner is not None and tuning.winner.uncertain:
        spread = f"{tuning.winner.spread:.0%}"
        note(f"{tuning.problem}: uncertain, times differ by {spread}: run it on a quieter machine")
    if tuning.left:
        names = "; ".join(map(str, tuning.left))
        note(f"{tuning.problem}: {len(tuning.left)} left by the budget ({names})")


def is_bad(tuning: Tuning) -> bool:
    wrong = any(trial.outcome == "wrong" for trial in tuning.tried)
    return wrong or (tuning.winner is None and not tuning.left)


def write_report(path: Path, trials: Trials, tunings: list[Tuning]) -> None:
    from autotune.report import Untried, page
    from ferro.folders import write_atomically

    run = {tuning.problem.place: Untried(tuning.skipped, tuning.left) for tuning in tunings}
    write_atomically(path, page(trials, run).encode())
    note(f"wrote {path}")
