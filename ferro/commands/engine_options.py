"""Options of the commands that run a language model: how it is held in memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ferro.commands import options

if TYPE_CHECKING:
    from pathlib import Path

    from ferro.models.language_model import LanguageModel


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how the model runs")
    group.add_argument(
        "--ctx",
        "--lm-ctx",
        dest="context",
        type=int,
        metavar="N",
        help="tokens of the context (default 4096, or what the model takes)",
    )
    group.add_argument(
        "--cache",
        "--kv-dtype",
        choices=("f32", "f16", "int8"),
        default="f16",
        help="how keys and values are kept (default f16)",
    )
    group.add_argument(
        "--weights",
        choices=("q4", "q8", "f32"),
        default="q4",
        help="q4: 4 bits where the file has 4, else 8; q8: always 8; f32: weights and activations "
        "in float32, to compare with (default q4)",
    )


@contextmanager
def opened(args: argparse.Namespace, path: Path) -> Iterator[LanguageModel]:
    """The language model of ``path`` on the device that was chosen.

    Raises UsageError, NoSuchDevice, ModelError, OutOfMemory.
    """
    from ferro.models.language_model import LanguageModel

    options.check_context(args.context, "--ctx")
    how = {"weights": args.weights, "cache": args.cache, "context": args.context}
    how["slots"] = getattr(args, "slots", 1)
    with options.open_device(args) as device, LanguageModel.open(path, device, **how) as model:
        yield model
