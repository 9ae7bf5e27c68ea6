"""Measures a server over HTTP: tokens/s of several streams, waits beside a long prompt, idleness.

    python -m benchmarks.serving model.gguf --peer path/to/llama-server --json serving.json

With a peer both are under way with as many slots and threads, and take turns sample by sample, in
which the other one has nothing to do. The long prompt has 1,600 tokens or a few more.
"""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.quiet import Sample, quietly
from benchmarks.served import Reply, Served, serving, started, words
from ferro.neighbours import quiet
from ferro.report import emit, note, table, to_json
from ferro.runtime.listing import host_processor

STREAMS = (1, 2, 4, 8)
LONG = 1600  # tokens
SHORT = 12  # words
DECODED = 96
IDLE_SECONDS = 20
ASIDE = 0.1  # seconds between short requests, at most
CONTEXT = 2048
OWN, PEER = "Ferro", "llama.cpp"
Numbers = list[float]


@dataclass(frozen=True)
class Measure:
    """``take`` measures a server in one turn, which may give several numbers."""

    name: str
    unit: str
    take: Callable[[Served, int], Numbers]


def body(text: str, tokens: int) -> dict[str, Any]:
    return {"prompt": text, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}


def total(streams: int) -> Callable[[Served, int], Numbers]:
    """Tokens/s of streams that begin together, their prompts' time among it."""

    def take(served: Served, turn: int) -> Numbers:
        requests = [body(words(SHORT, 50 * turn + i), DECODED) for i in range(streams)]
        began = time.perf_counter()
        with ThreadPoolExecutor(streams) as pool:
            replies = list(pool.map(served.stream, requests))
        seconds = time.perf_counter() - began
        made = sum(reply.tokens for reply in replies)
        assert made == streams * DECODED, f"{made} tokens, not {DECODED} of each"
        return [made / seconds]

    return take


def first_tokens(served: Served, turn: int) -> Numbers:
    """Seconds to the first token of a short request, with nothing else to do."""
    requests = [body(words(SHORT, 900 + 10 * turn + i), 2) for i in range(3)]
    return [served.stream(request).times[0] for request in requests]


def beside_a_long_prompt(served: Served, turn: int) -> Numbers:
    """Seconds to the first token of short requests while a long prompt fills."""
    text, filled, found = long_text(served), list[Reply](), Numbers()
    request = body(f"{turn} {text}", 2)
    filling = threading.Thread(target=lambda: filled.append(served.stream(request)))
    filling.start()
    time.sleep(0.15 + 0.037 * (turn % 7))
    draw = random.Random(turn)
    while not filled:
        found.append(served.stream(body(words(SHORT, 2000 + 100 * turn + len(found)), 2)).times[0])
        time.sleep(draw.random() * ASIDE)  # or each would come as a slice begins
    filling.join()
    return found


def stall(served: Served, turn: int) -> Numbers:
    """The longest wait between tokens of a stream while two long prompts fill."""
    text = long_text(served)
    with ThreadPoolExecutor(3) as pool:
        stream = pool.submit(served.stream, body(words(SHORT, turn), 150))
        time.sleep(0.3)
        for i in (1, 2):
            pool.submit(served.stream, body(f"{turn}{i} {text}", 2))
        return [stream.result().stall]


IDLE = Measure("short request, first token, idle", "s", first_tokens)
BESIDE = Measure("the same beside a long prompt", "s", beside_a_long_prompt)
MEASURES = (
    *(Measure(f"{n} stream{'s' * (n > 1)}", "tok/s", total(n)) for n in STREAMS),
    IDLE,
    BESIDE,
    Measure("longest stall beside two long prompts", "s", stall),
)


def long_text(served: Served) -> str:
    """A prompt of ``LONG`` tokens or a few more."""
    count = LONG // 2
    while len(served.ask("POST", "/tokenize", {"content": words(count, 3)})[1]["tokens"]) < LONG:
        count += 16
    return words(count, 3)


class Match:
    """Samples of some servers, taken in turns: ``rounds`` by what was measured, each with a sample
    of every server."""

    def __init__(self, servers: Mapping[str, Served]) -> None:
        self._servers = servers
        self._beside = [served.process.pid for served in servers.values()]
        self.rounds: dict[Measure, list[dict[str, Sample[Numbers]]]] = {m: [] for m in MEASURES}

    def round(self, turn: int) -> None:
        """One more of each; it does not count where one server's sample stays disturbed."""
        for measure, rounds in self.rounds.items():
            found = {name: self._sample(measure, name, turn) for name in self._servers}
            others = [sample.others for sample in found.values()]
            if all(map(quiet, others)):
                rounds.append(found)
            else:
                note(f"{measure.name}: others took {max(o or 0 for o in others):.0%}, left out")

    def _sample(self, measure: Measure, name: str, turn: int) -> Sample[Numbers]:
        return quietly(lambda: measure.take(self._servers[name], turn), self._beside)

    def numbers(self, measure: Measure, name: str) -> Numbers:
        return [number for found in self.rounds[measure] for number in found[name].value]

    def times_as_fast(self, measure: Measure) -> float | None:
        """As the peer: the median over rounds."""
        pairs = [
            (median(found[OWN].value), median(found[PEER].value))
            for found in self.rounds[measure]
            if PEER in found and found[OWN].value and found[PEER].value
        ]
        if not pairs:
            return None
        return median(a / b if measure.unit == "tok/s" else b / a for a, b in pairs)

    def waits(self, name: str) -> float | None:
        """A first token beside a long prompt: how many times as late as of an idle server."""
        beside, idle = self.numbers(BESIDE, name), self.numbers(IDLE, name)
        return median(beside) / median(idle) if beside and idle else None

    def others(self, measure: Measure) -> float | None:
        """The largest share that others took during a sample that counts."""
        counted = (s.others for found in self.rounds[measure] for s in found.values())
        return max((share for share in counted if share is not None), default=None)

    def lines(self) -> Iterator[list[object]]:
        for measure in MEASURES:
            texts = [described(self.numbers(measure, name), measure) for name in self._servers]
            times, others = self.times_as_fast(measure), self.others(measure)
            yield [measure.name, *texts, *shown(times, ".2f"), *shown(others, ".1%")]
        waits = [shown(self.waits(name), ".2f")[0] for name in self._servers]
        yield ["times as late as idle", *waits, None, None]

    def record(self) -> dict[str, Any]:
        return {
            measure.name: {
                "unit": measure.unit,
                "times as fast": self.times_as_fast(measure),
                "rounds": [{n: asdict(s) for n, s in found.items()} for found in rounds],
            }
            for measure, rounds in self.rounds.items()
        }


def described(numbers: Numbers, measure: Measure) -> str:
    """Their median, the worst of them and their count."""
    if not numbers:
        return "disturbed"
    if measure.unit == "tok/s":
        return f"{median(numbers):.0f} ({min(numbers):.0f}, {len(numbers)}) tok/s"
    return f"{1e3 * median(numbers):.0f} ({1e3 * max(numbers):.0f}, {len(numbers)}) ms"


def shown(value: float | None, form: str) -> list[object]:
    return [None if value is None else format(value, form)]


def idleness(served: Served) -> int:
    """Ticks of processor time that the idle server takes."""
    time.sleep(2)
    before = served.resources()["ticks"]
    time.sleep(IDLE_SECONDS)
    return served.resources()["ticks"] - before


def peer(args: argparse.Namespace) -> list[str]:
    """llama-server's command, with as many slots of as many tokens."""
    slots = max(STREAMS)
    sizes = ["-np", slots, "-c", slots * CONTEXT, "-t", args.threads]
    return [str(word) for word in (args.peer, "-m", args.model, *sizes, *args.peer_options.split())]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", type=Path, help="llama.cpp's llama-server")
    parser.add_argument("--peer-options", default="", help="more options of it, in one text")
    parser.add_argument("--device", default="intel")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", action="store_true", help="measure idleness too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all samples")
    parser.add_argument("options", nargs="*", help="options of `ferro serve`, after `--`")
    args = parser.parse_args()
    sizes = ["--lm-slots", str(max(STREAMS)), "--ctx", str(CONTEXT)]
    where = ["--device", args.device, "--threads", str(args.threads)]
    with ExitStack() as stack:
        enter = stack.enter_context
        servers = {OWN: enter(serving(str(args.model), *where, *sizes, *args.options))}
        if args.peer:
            servers[PEER] = enter(started(peer(args), "/health"))
        note("ready")
        match = Match(servers)
        for turn in range(args.rounds):
            match.round(turn)
        idle = {name: idleness(served) for name, served in servers.items()} if args.idle else {}
    emit(f"{args.model.name}, {args.device}, {args.threads} threads; median (worst, count)")
    emit(table(["", *servers, "times as fast", "others"], list(match.lines())))
    for name, ticks in idle.items():
        emit(f"{name}: {ticks} ticks in {IDLE_SECONDS} s of idleness")
    if args.json:
        kept = {"processor": host_processor(), "model": args.model.name, "works": match.record()}
        args.json.write_text(to_json({**kept, "idle ticks": idle}) + "\n")


if __name__ == "__main__":
    main()
