"""Measures a decision model: questions a second of requests at once, and of one at a time."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferro import __version__
from ferro.commands import UsageError, decide, options
from ferro.report import Progress, emit, note, table, to_json

if TYPE_CHECKING:
    from ferro.models.decision_model import DecisionModel
    from ferro.models.pace import Measurement


def run(args: argparse.Namespace, path: Path) -> int:
    from ferro.models.decision_model import DecisionModel

    if args.request is None:
        raise UsageError("of a decision model --request FILE says what is measured")
    if args.repetitions < 1:
        raise UsageError(f"-r takes a number above 0, got {args.repetitions}")
    bodies = decide.requests_of(args.request)
    with (
        options.open_device(args) as device,
        DecisionModel.open(path, device, weights=args.weights, context=args.context) as model,
        Progress(2 * (args.repetitions + 1), "bench") as progress,
    ):
        found, same = measured(model, bodies, args.repetitions, progress)
        if args.json:
            emit(to_json(as_json(args, model, len(bodies), found, same)))
        else:
            emit(f"{path.name} on {model.device.info}, weights {args.weights}")
            emit(text(len(bodies), found))
    if not same:
        note("ferro bench: THE ANSWERS DIFFERED between repetitions, or together and alone")
    return 0 if same else 1


def measured(
    model: DecisionModel, bodies: list[Any], repetitions: int, progress: Progress
) -> tuple[list[Measurement], bool]:
    """Samples of all requests at once and one by one, in turns, of which the first do not count;
    and whether all answers were the same."""
    from ferro.models.pace import Measurement, timed

    questions = sum(len(body["questions"]) for body in bodies)
    replies: list[Any] = []

    def together() -> None:
        replies.append(model.replies(bodies))

    def alone() -> None:
        replies.append([reply for body in bodies for reply in model.replies([body])])

    tokens = sum(reply["usage"]["input_tokens"] for reply in model.replies(bodies))
    found = [Measurement(kind, questions, tokens) for kind in ("together", "alone")]
    for number in range(repetitions + 1):
        for wanted, action in zip(found, (together, alone), strict=True):
            sample = timed(questions, action)
            progress.step(wanted.kind)
            if number:
                wanted.samples.append(sample)
    return found, all(each == replies[0] for each in replies)


def as_json(
    args: argparse.Namespace,
    model: DecisionModel,
    requests: int,
    found: list[Measurement],
    same: bool,
) -> dict[str, Any]:
    return {
        "version": __version__,
        "model": {"path": model.file.path, "architecture": model.hyperparameters.architecture},
        "device": {"name": str(model.device.info), "target": model.device.target.name},
        "config": {"weights": args.weights, "threads": args.threads, "batch": model.batch},
        "requests": requests,
        "decide": [
            {
                "kind": m.kind,
                "questions": m.tokens,
                "tokens": m.depth,
                "questions_per_second": m.median,
                "seconds_per_request": seconds(m, requests),
                "spread": m.spread,
                "samples": [asdict(sample) for sample in m.samples],
            }
            for m in found
        ],
        "same": same,
    }


def seconds(measurement: Measurement, requests: int) -> float:
    """How long a request takes: its share of all that are asked together, or its own time."""
    return measurement.tokens / measurement.median / requests


def text(requests: int, found: list[Measurement]) -> str:
    from ferro.commands.bench import others, rates

    columns = ["requests", "", "questions", "tokens", "questions/s", "ms/request", "spread",
               "others", "samples"]  # fmt: skip
    rows = [
        [
            requests,
            m.kind,
            m.tokens,
            m.depth,
            f"{m.median:.1f}",
            f"{1000 * seconds(m, requests):.1f}",
            f"{m.spread:.0%}",
            others(m),
            rates(m),
        ]
        for m in found
    ]
    return table(columns, rows)
