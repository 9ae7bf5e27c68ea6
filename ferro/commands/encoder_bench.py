"""Measures an embedding model: how many sequences a second it takes, some at a time."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferro import __version__
from ferro.commands import UsageError, options
from ferro.report import Progress, emit, note, table, to_json

if TYPE_CHECKING:
    from ferro.models.embedding_model import EmbeddingModel
    from ferro.models.pace import Measurement

MOST = 1 << 20  # tokens of all sequences: more would tell nothing new
TOKENS = 12  # of a sequence where -p says nothing else: a search query


def run(args: argparse.Namespace, path: Path) -> int:
    from ferro.models.embedding_model import EmbeddingModel
    from ferro.models.pace import Measurement

    counts, length = sizes(args)
    with (
        options.open_device(args) as device,
        EmbeddingModel.open(path, device, weights=args.weights, context=args.context) as model,
    ):
        if length > model.context:
            raise UsageError(f"-p {length}: the context holds {model.context} tokens (--ctx)")
        found = [Measurement("embed", count, length) for count in counts]
        with Progress(len(found) * (args.repetitions + 1), "bench") as progress:
            told = [measured(model, each, args.repetitions, progress) for each in found]
        same = all(told)
        if args.json:
            emit(to_json(as_json(args, model, found, same)))
        else:
            emit(f"{path.name} on {model.device.info}, weights {args.weights}")
            emit(text(found))
    if not same:
        note("ferro bench: THE VECTORS DIFFERED between repetitions, or packed and alone")
    return 0 if same else 1


def sizes(args: argparse.Namespace) -> tuple[list[int], int]:
    """Numbers of sequences, and their tokens. Raises UsageError."""
    from ferro.commands.bench import numbers

    counts = numbers(args.sequences, "--sequences")
    length, *more = [TOKENS] if args.prompt_tokens is None else numbers(args.prompt_tokens, "-p")
    if more or not length or not all(counts):
        raise UsageError("an embedding model takes one -p and --sequences, numbers above 0")
    if max(counts, default=0) * length > MOST:
        raise UsageError(
            f"--sequences {max(counts)} of {length} tokens are {max(counts) * length} tokens"
            f" (at most {MOST})"
        )
    if args.repetitions < 1:
        raise UsageError(f"-r takes a number above 0, got {args.repetitions}")
    return counts, length


def measured(
    model: EmbeddingModel, wanted: Measurement, repetitions: int, progress: Progress
) -> bool:
    """Take the samples of one size, of which the first does not count; whether the vectors were the
    same bits each time, and that of the last sequence alone."""
    from ferro.models.pace import timed

    ids = sequences(wanted.tokens, wanted.depth, model.hyperparameters.vocabulary)
    vectors = []
    for number in range(repetitions + 1):
        sample = timed(len(ids), lambda: vectors.append(model.embed_ids(ids)))
        progress.step(f"{len(ids)} sequences")
        if number:
            wanted.samples.append(sample)
    alone = model.embed_ids(ids[-1:])[0].tobytes()
    return all(each.tobytes() == vectors[0].tobytes() for each in vectors) and (
        vectors[0][-1].tobytes() == alone
    )


def sequences(count: int, length: int, vocabulary: int) -> list[list[int]]:
    """Tokens without a meaning, other ones in each sequence."""
    return [[(7919 * (i * length + k) + 13) % vocabulary for k in range(length)]
            for i in range(count)]  # fmt: skip


def as_json(
    args: argparse.Namespace, model: EmbeddingModel, found: list[Measurement], same: bool
) -> dict[str, Any]:
    return {
        "version": __version__,
        "model": {"path": model.file.path, "architecture": model.hyperparameters.architecture},
        "device": {"name": str(model.device.info), "target": model.device.target.name},
        "config": {"weights": args.weights, "threads": args.threads, "batch": model.batch},
        "embed": [
            {
                "sequences": m.tokens,
                "tokens": m.depth,
                "median": m.median,
                "spread": m.spread,
                "samples": [asdict(sample) for sample in m.samples],
            }
            for m in found
        ],
        "same": same,
    }


def text(found: list[Measurement]) -> str:
    from ferro.commands.bench import others, rates

    columns = ["sequences", "of tokens", "sequences/s", "tok/s", "spread", "others", "samples"]
    rows = [
        [
            m.tokens,
            m.depth,
            f"{m.median:.1f}",
            f"{m.median * m.depth:.0f}",
            f"{m.spread:.0%}",
            others(m),
            rates(m),
        ]
        for m in found
    ]
    return table(columns, rows)
