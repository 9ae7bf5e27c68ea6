"""Ferro and llama.cpp's library in turns on questions to one decision model.

    python -m benchmarks.decision_file d1-shape.gguf
    python -m benchmarks.decisions d1-shape.gguf --oracle path/to/oracle --python its/bin/python

Each round takes one sample of both, with as many threads; llama.cpp with one sequence in a batch,
with some and with all, with flash attention and without: those near the fastest one in a first try
are timed in every round, of which the fastest counts. It computes the heads of all three types of
questions, as it always does; Ferro that which is asked for. A ratio is the median over rounds.
Samples of either during which others took more than 5% of the processors are taken again, and their
round is left out if that does not help: llama.cpp's threads wait for each other, so it suffers
most. How far the scores lie apart is printed too.

A library that does not know the head of decisions runs ``--trunk FILE``, a language model of the
same shape, in its place: less work than Ferro's, and no scores to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.quiet import TRIES, Sample, quietly
from ferro.commands.encoder_bench import sequences
from ferro.models.decision_model import DecisionModel
from ferro.models.packing import Input
from ferro.neighbours import quiet
from ferro.report import emit, note, table, to_json
from ferro.runtime.devices import open_device
from ferro.runtime.listing import host_processor

MARKS = 2  # options of each question
NEAR = 1.1
COLUMNS = [
    "sequences",
    "of tokens",
    "Ferro",
    "llama.cpp",
    "ratio",
    "spread",
    "others",
    "peer's way",
]


@dataclass(frozen=True)
class Way:
    """How llama.cpp is asked: sequences in a batch, and whether with flash attention."""

    group: int
    flash: bool

    def __str__(self) -> str:
        return f"{self.group} in a batch{', flash attention' if self.flash else ''}"


@dataclass(frozen=True)
class Round:
    """Seconds of both for all sequences, and the way in which llama.cpp was fastest."""

    own: float
    peer: float
    way: str
    others: float

    @property
    def ratio(self) -> float:
        return self.peer / self.own


class Peer:
    """llama.cpp in a process that waits while Ferro is measured."""

    def __init__(self, process: subprocess.Popen[str], inputs: Sequence[Input]) -> None:
        self._process = process
        self._work = {
            "sequences": [each.tokens for each in inputs],
            "wanted": [each.wanted for each in inputs],
        }

    def ask(self, group: int, flash: bool) -> tuple[Sample, Any]:
        """Seconds, and float32 [wanted rows, 3]."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({**self._work, "group": group, "flash": flash}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp's process ended: its message is above")
        answer = json.loads(line)
        sample = Sample(float(answer["seconds"]), answer["others"])
        return sample, np.array(answer["rows"], np.float32)

    def fastest(self, ways: Sequence[Way]) -> tuple[Sample, Way]:
        """Of these ways; one that is disturbed in all tries makes the whole of it count as that."""
        found = {way: self._quietly(way.group, way.flash) for way in ways}
        disturbed = [sample for sample in found.values() if not quiet(sample.others)]
        way = min(found, key=lambda way: found[way].value)
        return Sample(found[way].value, (disturbed or [found[way]])[0].others), way

    def promising(self, groups: Sequence[int]) -> list[Way]:
        """Of all ways those that take at most NEAR times what the fastest one does."""
        ways = [Way(group, flash) for group, flash in product(groups, (False, True))]
        taken = {way: self.ask(way.group, way.flash)[0].value for way in ways}
        return [way for way in ways if taken[way] <= NEAR * min(taken.values())]

    def _quietly(self, group: int, flash: bool) -> Sample:
        sample = self.ask(group, flash)[0]
        for _ in range(TRIES - 1):
            if quiet(sample.others):
                break
            sample = self.ask(group, flash)[0]
        return sample


@contextmanager
def peer(args: argparse.Namespace, inputs: Sequence[Input]) -> Iterator[Peer]:
    script = Path(__file__).with_name("decision_peer.py")
    command = [args.python, script, args.oracle, args.trunk or args.model, args.threads]
    pipe = subprocess.PIPE
    with subprocess.Popen([*map(str, command)], text=True, stdin=pipe, stdout=pipe) as process:
        try:
            yield Peer(process, inputs)
        finally:
            process.kill()


def questions(count: int, length: int, vocabulary: int) -> list[Input]:
    """Of all types in turn, whose options are marked at the end."""
    wanted = tuple(range(length - MARKS, length))
    drawn = sequences(count, length, vocabulary)
    return [Input(tuple(ids), wanted, i % 3) for i, ids in enumerate(drawn)]


def rounds(model: DecisionModel, other: Peer, inputs: list[Input], args: Any) -> Iterator[Round]:
    def own() -> float:
        began = time.perf_counter()
        model.score(inputs)
        return time.perf_counter() - began

    own()  # kernels are built, plans recorded
    ways = other.promising(args.groups)
    for _ in range(args.rounds):
        sample = quietly(own)
        theirs, way = other.fastest(ways)
        others = max(sample.others or 0.0, theirs.others or 0.0)
        if quiet(others):
            yield Round(sample.value, theirs.value, str(way), others)
        else:
            note(f"others took {others:.0%}, left out")


def apart(model: DecisionModel, other: Peer, inputs: list[Input]) -> tuple[float, float]:
    """Root mean square of the difference of scores, and of llama.cpp's scores."""
    kinds = [each.kind for each in inputs for _ in each.wanted]
    theirs = other.ask(1, False)[1][np.arange(len(kinds)), kinds]
    ours = np.concatenate(model.score(inputs))
    return rms(ours - theirs), rms(theirs)


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def line(found: list[Round], count: int, length: int) -> list[object]:
    if not found:
        return [count, length, *["disturbed"] * 6]
    ratios = [one.ratio for one in found]
    middle = median(ratios)
    return [
        count,
        length,
        f"{count / median(one.own for one in found):.1f}/s",
        f"{count / median(one.peer for one in found):.1f}/s",
        f"{middle:.2f}",
        f"{(max(ratios) - min(ratios)) / middle:.0%}",
        f"{max(one.others for one in found):.1%}",
        min(found, key=lambda one: one.peer).way,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--oracle", type=Path, required=True, help="folder of oracle.py")
    parser.add_argument("--python", type=Path, required=True, help="a Python with its library")
    parser.add_argument("--trunk", type=Path, metavar="FILE", help="what llama.cpp runs instead")
    parser.add_argument("--device", default=None)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--weights", default="q8", choices=("q4", "q8", "f32"))
    parser.add_argument("--sequences", type=int, default=48)
    parser.add_argument("-p", type=int, default=62, help="tokens of a sequence")
    parser.add_argument("--groups", default="1,8,48", help="llama.cpp's sequences in a batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.groups = sorted({min(int(word), args.sequences) for word in args.groups.split(",")})
    if args.sequences < 1 or args.p < MARKS or args.rounds < 1 or args.groups[0] < 1:
        parser.error(f"numbers above 0 are needed, and {MARKS} tokens a sequence")
    with (
        open_device(args.device) as device,
        DecisionModel.open(args.model, device, weights=args.weights) as model,
    ):
        inputs = questions(args.sequences, args.p, model.hyperparameters.vocabulary)
        with peer(args, inputs) as other:
            difference, size = (None, None) if args.trunk else apart(model, other, inputs)
            found = list(rounds(model, other, inputs, args))
        described = str(device.info)
    emit(f"{args.model.name} on {described}, {args.threads} threads, weights {args.weights}")
    emit(table(COLUMNS, [line(found, args.sequences, args.p)]))
    if difference is not None:
        emit(f"scores lie {difference:.2g} apart (root mean square), theirs are of {size:.2g}")
    if args.json:
        record = {"processor": host_processor(), "device": described, "difference": difference,
                  "size": size, "rounds": [asdict(one) for one in found]}  # fmt: skip
        args.json.write_text(to_json(record) + "\n")


if __name__ == "__main__":
    main()
