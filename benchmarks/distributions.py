"""How far a model's next-token distributions are from stored ones.

    python -m benchmarks.distributions model.gguf answers.npz --device intel --other pocl

The answers hold for prompt i ``ids_i``, its tokens, and ``logits_i``, float32 [vocabulary] after
the last one. Total variation is half the sum of the differences of probabilities; a top token
counts where the stored best two logits are more than ``MARGIN`` apart. With ``--other`` the logits
of a second device are compared bit for bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.models.language_model import LanguageModel
from ferro.models.passes import Piece
from ferro.report import table, to_json
from ferro.runtime import open_device

MARGIN = 0.3
SLICE = 256
MEAN, MOST = 0.045, 0.09

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Distance:
    """Of one prompt: ``margin`` is between the stored best two logits."""

    prompt: int
    tokens: int
    variation: float
    same_top: bool
    margin: float
    equal_bits: bool | None = None

    @property
    def good(self) -> bool:
        """Whether the top token is the stored one, where that can be asked."""
        return self.same_top or self.margin <= MARGIN


def main() -> int:
    args = arguments()
    found = list(distances(args))
    columns = ["prompt", "tokens", "total variation", "same top token", "margin", "equal bits"]
    emit(table(columns, [list(vars(each).values()) for each in found]))
    variations = [each.variation for each in found]
    mean, most = sum(variations) / len(found), max(variations)
    good = all(each.good and each.equal_bits is not False for each in found)
    emit(f"mean {mean:.4f}, most {most:.4f}")
    if args.json:
        with open(args.json, "w") as file:
            file.write(to_json({"mean": mean, "most": most, "prompts": found}))
    return 0 if good and mean < MEAN and most < MOST else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("answers", help="stored logits (npz)")
    parser.add_argument("--device", help="where to run (default: the best device)")
    parser.add_argument("--other", help="a device that must give the same bits")
    parser.add_argument("--weights", default="q8", choices=("q4", "q8", "f32"))
    parser.add_argument("--cache", default="f16", choices=("f32", "f16", "int8"))
    parser.add_argument("--json", metavar="FILE", help="keep the numbers")
    return parser.parse_args()


def distances(args: argparse.Namespace) -> Iterator[Distance]:
    with np.load(args.answers) as stored:
        prompts = sum(name.startswith("ids_") for name in stored.files)
        ids = [stored[f"ids_{i}"].tolist() for i in range(prompts)]
        wanted = [stored[f"logits_{i}"] for i in range(prompts)]
    found = logits(args, args.device, ids)
    others = logits(args, args.other, ids) if args.other else [None] * prompts
    for i, (ours, theirs, other) in enumerate(zip(found, wanted, others, strict=True)):
        second, first = np.sort(theirs)[-2:]
        yield Distance(
            prompt=i,
            tokens=len(ids[i]),
            variation=total_variation(ours, theirs),
            same_top=bool(np.argmax(ours) == np.argmax(theirs)),
            margin=float(first - second),
            equal_bits=None if other is None else ours.tobytes() == other.tobytes(),
        )


def logits(args: argparse.Namespace, device: str | None, prompts: list[list[int]]) -> list[Floats]:
    """After the last token of each prompt, filled in slices."""
    longest = max(map(len, prompts))
    found = []
    with (
        open_device(device) as opened,
        LanguageModel.open(
            args.model, opened, weights=args.weights, cache=args.cache, context=longest
        ) as model,
    ):
        for ids in prompts:
            for start in range(0, len(ids), SLICE):
                part = tuple(ids[start : start + SLICE])
                last = int(start + SLICE >= len(ids))
                rows = model.forward([Piece(0, start, part, last)])
            found.append(rows[0])
    return found


def total_variation(a: Floats, b: Floats) -> float:
    return float(np.abs(softmax(a) - softmax(b)).sum() / 2)


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def emit(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
