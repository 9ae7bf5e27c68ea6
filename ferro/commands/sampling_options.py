"""Options of a completion: how tokens are chosen, and when to stop."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ferro.commands import UsageError, options

if TYPE_CHECKING:
    from ferro.models.completion import Options
    from ferro.models.gguf_metadata import Metadata

# The option, the field of ``Sampling``, its type, and what it means.
FIELDS = (
    ("--temp", "temperature", float, "temperature; 0 takes the best token"),
    ("--top-k", "top_k", int, "keep the K likeliest tokens (0: all)"),
    ("--top-p", "top_p", float, "keep the likeliest tokens that reach this share"),
    ("--min-p", "min_p", float, "keep tokens with this share of the likeliest one's"),
    ("--repeat-penalty", "repeat_penalty", float, "of tokens that were there before (1: none)"),
    ("--repeat-last-n", "repeat_last_n", int, "tokens that penalties look at (-1: all)"),
    ("--presence-penalty", "presence_penalty", float, "taken off tokens that were there (0: none)"),
    ("--frequency-penalty", "frequency_penalty", float, "the same, for each time (0: none)"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how tokens are chosen (default: as the model's makers say)")
    for option, name, kind, text in FIELDS:
        group.add_argument(
            option, dest=name, type=kind, metavar="N" if kind is int else "X", help=text
        )
    group.add_argument(
        "--penalty-scope",
        choices=("all", "generated"),
        default="all",
        help="whether penalties count the prompt's tokens (default all)",
    )
    group.add_argument(
        "--logit-bias",
        action="append",
        default=[],
        metavar="ID=BIAS",
        help="add to the logit of a token; -inf rules it out",
    )
    group.add_argument("--seed", type=int, metavar="N", help="the same text again (default: any)")
    group = parser.add_argument_group("when to stop")
    group.add_argument(
        "-n", "--n-predict", type=int, metavar="N", help="tokens (default: until the model ends)"
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="a text to stop at, not shown"
    )
    group.add_argument(
        "--ignore-eos", action="store_true", help="go on after tokens that end a turn"
    )


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``Sampling`` that the options name. Raises UsageError."""
    found = {
        name: getattr(args, name) for _, name, _, _ in FIELDS if getattr(args, name) is not None
    }
    found |= {
        "penalise_prompt": args.penalty_scope == "all",
        "logit_bias": _biases(args.logit_bias),
    }
    if args.seed is not None:
        if args.seed < 0:
            raise UsageError(f"--seed takes a number of at least 0, got {args.seed}")
        found["seed"] = args.seed
    return found


def chosen(args: argparse.Namespace, metadata: Metadata | None = None) -> Options:
    """The options of a completion. What ``metadata`` recommends counts where nothing else is asked
    for, except for greedy choice, which takes the logits as they are.

    Raises UsageError, BadSampling, BadRequest, WrongValue.
    """
    from ferro.models.completion import Options
    from ferro.models.recommended import recommended
    from ferro.models.sampler import Sampling

    asked = given(args)
    usual: dict[str, Any] = {}
    if metadata is not None and asked.get("temperature") != 0:
        usual = recommended(metadata)
    return Options(Sampling(**(usual | asked)), args.n_predict, tuple(args.stop), args.ignore_eos)


def _biases(texts: list[str]) -> dict[int, float]:
    single = [part for text in texts for part in text.split(",")]
    try:
        found = options.pairs(single, "--logit-bias").items()
        return {int(token): float(bias) for token, bias in found}
    except ValueError:
        raise UsageError(f"--logit-bias takes ID=BIAS, got {' '.join(texts)}") from None
