"""Ferro and llama.cpp in turns on the same model file.

    python -m benchmarks.peers model.gguf --peer path/to/llama-bench -p 192,762 -n 64 -d 0,1921

Each round takes one sample of every kind from both, with as many threads; llama.cpp with flash
attention and without, of which the faster one counts. A ratio is the median over rounds. Ferro's
greedy text of a known prompt is printed, to be compared with the peer's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.quiet import quietly
from ferro.models.language_model import LanguageModel
from ferro.models.pace import Check, Pace
from ferro.neighbours import quiet
from ferro.report import emit, note, table, to_json
from ferro.runtime.devices import open_device
from ferro.runtime.listing import host_processor

COLUMNS = ["", "tokens", "after", "Ferro", "llama.cpp", "ratio", "spread", "others"]


@dataclass
class Match:
    """One kind of work: tokens a second of both in each round that was not disturbed."""

    kind: str
    tokens: int
    depth: int
    own: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    others: float = 0.0

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.own, self.peer, strict=True)]

    def line(self) -> list[object]:
        ratios = self.ratios
        if not ratios:
            return [self.kind, self.tokens, self.depth, *["disturbed"] * 5]
        spread = (max(ratios) - min(ratios)) / median(ratios)
        return [
            self.kind,
            self.tokens,
            self.depth,
            f"{median(self.own):.1f}",
            f"{median(self.peer):.1f}",
            f"{median(ratios):.2f}",
            f"{spread:.0%}",
            f"{self.others:.1%}",
        ]


def matches(prefills: list[int], tokens: int, depths: list[int]) -> list[Match]:
    wanted = [Match("prefill", size, 0) for size in prefills if size]
    return wanted + [Match("decode", tokens, depth) for depth in depths if tokens]


def peer_rate(program: Path, model: Path, match: Match, threads: int) -> float:
    """Tokens a second of the faster of flash attention and plain attention."""
    filled, decoded = (match.tokens, 0) if match.kind == "prefill" else (0, match.tokens)
    size = ["-p", filled, "-n", decoded]
    rates = []
    for flash in (0, 1):
        command = [program, "-m", model, "-t", threads, "-r", 1, "-fa", flash, "-o", "json", *size]
        command += ["-d", match.depth] if match.depth else []
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
        rates.append(float(json.loads(done.stdout)[0]["avg_ts"]))
    return max(rates)


def own_rate(pace: Pace, match: Match) -> float:
    prefills = [match.tokens] if match.kind == "prefill" else []
    decodes = [(match.tokens, match.depth)] if match.kind == "decode" else []
    (measured,) = pace.run(prefills, decodes, 1)
    return measured.samples[-1].rate


def rounds(pace: Pace, wanted: list[Match], args: argparse.Namespace) -> None:
    """Fills ``wanted``; samples of either side in which others took more than 5% of the processors
    are taken again, and their round is left out if that does not help."""
    for _ in range(args.rounds):
        for match in wanted:
            ours = quietly(partial(own_rate, pace, match))
            theirs = quietly(partial(peer_rate, args.peer, args.model, match, args.threads))
            others = max(ours.others or 0.0, theirs.others or 0.0)
            if not quiet(others):
                note(f"{match.kind} {match.tokens}: others took {others:.0%}, left out")
                continue
            match.own.append(ours.value)
            match.peer.append(theirs.value)
            match.others = max(match.others, others)


def record(wanted: list[Match], check: Check, device: str) -> dict[str, Any]:
    return {
        "processor": host_processor(),
        "device": device,
        "matches": [{**vars(match), "ratios": match.ratios} for match in wanted],
        "text": vars(check),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", type=Path, required=True, help="llama.cpp's llama-bench")
    parser.add_argument("--device", default=None)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--weights", default="q4", choices=("q4", "q8"))
    parser.add_argument("-p", default="192,762", help="sizes of prefills, 0 for none")
    parser.add_argument("-n", type=int, default=64, help="tokens to decode")
    parser.add_argument("-d", default="0,1921", help="depths to decode after")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    prefills, depths = ([int(word) for word in text.split(",")] for text in (args.p, args.d))
    wanted = matches(prefills, args.n, depths)
    context = max([*prefills, *(args.n + max(depth, 1) for depth in depths)])
    with (
        open_device(args.device) as device,
        LanguageModel.open(args.model, device, weights=args.weights, context=context) as model,
    ):
        pace = Pace(model)
        rounds(pace, wanted, args)
        check, described = pace.check(), str(device.info)
    emit(f"{args.model.name} on {described}, {args.threads} threads, weights {args.weights}")
    emit(table(COLUMNS, [match.line() for match in wanted]))
    emit(f"{check.prompt!r} goes on {check.text!r}{'' if check.same else ' (NOT ALWAYS)'}")
    if args.json:
        args.json.write_text(to_json(record(wanted, check, described)) + "\n")


if __name__ == "__main__":
    main()
