"""Options of the commands that run a model which sees whole inputs: how it is held in memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ferro.commands import options

if TYPE_CHECKING:
    from pathlib import Path

    from ferro.models.decision_model import DecisionModel


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how the model runs")
    group.add_argument(
        "--weights",
        choices=("q4", "q8", "f32"),
        default="q4",
        help="q4: 4 bits where the file has 4, else 8; q8: always 8; f32: weights and activations "
        "in float32, to compare with (default q4)",
    )
    batch_argument(group)


def batch_argument(group: argparse._ArgumentGroup) -> None:
    """How many tokens of questions share a pass."""
    group.add_argument(
        "--decision-batch",
        dest="batch",
        type=int,
        metavar="N",
        help="tokens of several prompts that share a pass (default 512)",
    )


@contextmanager
def opened(args: argparse.Namespace, path: Path) -> Iterator[DecisionModel]:
    """The decision model of ``path`` on the device that was chosen.

    Raises UsageError, NoSuchDevice, ModelError, BadOption, OutOfMemory.
    """
    options.check_context(args.batch, "--decision-batch")
    from ferro.models.decision_model import DecisionModel

    how = {} if args.batch is None else {"batch": args.batch}
    with (
        options.open_device(args) as device,
        DecisionModel.open(path, device, weights=args.weights, **how) as model,
    ):
        yield model
