"""Vectors of Ferro and of llama.cpp in turns on the same file.

    python -m benchmarks.embedding_file eg2.gguf
    python -m benchmarks.embeddings eg2.gguf --oracle path/to/oracle.py --python its/bin/python

Each round takes one sample of every number of sequences from both, with as many threads; llama.cpp
has all sequences in one batch, with flash attention and without, of which the faster one counts.
Its process sleeps while Ferro is measured. A ratio is the median over rounds. The least cosine of
both sides' vectors tells that they did the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import COLUMNS, Match
from ferro.commands.encoder_bench import sequences
from ferro.models.embedding_model import EmbeddingModel
from ferro.models.pace import timed
from ferro.models.vectors import normalised
from ferro.neighbours import quiet
from ferro.report import emit, note, table, to_json
from ferro.runtime.devices import open_device
from ferro.runtime.listing import host_processor

CHILD = Path(__file__).with_name("llama_embeddings.py")
Ids = Sequence[Sequence[int]]


class Peer:
    """llama.cpp in a process of its own."""

    def __init__(self, command: Sequence[object]) -> None:
        self._process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def embed(self, ids: Ids) -> tuple[float, Any]:
        """Seconds of the faster way, and the vectors [n, out]."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(ids) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp's process has ended")
        found = json.loads(line)
        return min(found["seconds"]), np.array(found["vectors"], np.float32)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def cosine(model: EmbeddingModel, peer: Peer, ids: Ids) -> float:
    """The least one of both sides' vectors; also their first, cold passes."""
    own, other = normalised(model.embed_ids(ids)), normalised(peer.embed(ids)[1])
    return float((own * other).sum(1).min())


def rounds(model: EmbeddingModel, peer: Peer, wanted: list[Match], count: int) -> None:
    """Fills ``wanted`` with sequences a second; a round in which others took more than 5% of the
    processors is left out."""
    for _ in range(count):
        for match in wanted:
            ids = sequences(match.tokens, match.depth, model.hyperparameters.vocabulary)
            model.embed_ids(ids)  # the caches are Ferro's again
            sample = timed(len(ids), lambda ids=ids: model.embed_ids(ids))  # type: ignore[misc]
            peer.embed(ids)
            seconds, _ = peer.embed(ids)
            if not quiet(sample.others):
                note(f"{match.tokens} sequences: others took {sample.others:.0%}, left out")
                continue
            match.own.append(sample.rate)
            match.peer.append(len(ids) / seconds)
            match.others = max(match.others, sample.others or 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embeddings", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--oracle", type=Path, required=True, help="oracle.py of llama.cpp's wheel")
    parser.add_argument("--python", default="python", help="which has that wheel")
    parser.add_argument("--library", type=Path, metavar="FOLDER", help="with another libllama.so")
    parser.add_argument("--device", default=None)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--weights", default="q8", choices=("q4", "q8", "f32"))
    parser.add_argument("--sequences", default="16,64")
    parser.add_argument("-p", type=int, default=12, help="tokens of each")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    wanted = [Match("embed", int(word), args.p) for word in args.sequences.split(",")]
    with ExitStack() as stack:
        device = stack.enter_context(open_device(args.device, threads=args.threads))
        model = stack.enter_context(EmbeddingModel.open(args.model, device, weights=args.weights))
        command = [args.python, CHILD, args.oracle, args.model, args.threads]
        peer = Peer([*command, *filter(None, [args.library])])
        stack.callback(peer.close)
        vocabulary = model.hyperparameters.vocabulary
        least = min(cosine(model, peer, sequences(m.tokens, m.depth, vocabulary)) for m in wanted)
        rounds(model, peer, wanted, args.rounds)
        described = str(device.info)
    emit(f"{args.model.name} on {described}, {args.threads} threads, weights {args.weights}")
    emit(table(["", "sequences", "of tokens", *COLUMNS[3:]], [match.line() for match in wanted]))
    emit(f"least cosine of the vectors of both: {least:.6f}")
    if args.json:
        matches = [{**vars(match), "ratios": match.ratios} for match in wanted]
        found = {"processor": host_processor(), "device": described, "cosine": least}
        args.json.write_text(to_json({**found, "matches": matches}) + "\n")


if __name__ == "__main__":
    main()
