"""Measures a server over HTTP: tokens/s of several streams, waits beside a long prompt, idleness.

`python -m benchmarks.serving MODEL`; other programs disturb it. The long prompt has 1,600 tokens or
a few more. Every number is a median with the worst behind it.
"""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from benchmarks.served import Reply, Served, serving, words
from ferro.neighbours import Watch
from ferro.report import emit, note, table, to_json

STREAMS = (1, 2, 4, 8)
LONG = 1600  # tokens
SHORT = 12  # words
DECODED = 96
IDLE_SECONDS = 20
ASIDE = 0.1  # seconds between short requests, at most


def body(text: str, tokens: int) -> dict[str, Any]:
    return {"prompt": text, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}


def totals(served: Served, rounds: int) -> Iterator[tuple[int, float]]:
    """Tokens/s of streams that decode together, from the last one's first token on."""
    for streams in STREAMS:
        rates = []
        for turn in range(rounds):
            requests = [body(words(SHORT, 50 * turn + i), DECODED) for i in range(streams)]
            began = time.perf_counter()
            with ThreadPoolExecutor(streams) as pool:
                replies = list(pool.map(served.stream, requests))
            seconds = time.perf_counter() - began
            rates.append(sum(len(reply.times) for reply in replies) / seconds)
        yield streams, median(rates)


def first_tokens(served: Served, rounds: int) -> list[float]:
    """Seconds to the first token of a short request, with nothing else to do."""
    return [served.stream(body(words(SHORT, 900 + i), 2)).times[0] for i in range(rounds)]


def beside_a_long_prompt(served: Served, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds to the first token of short requests while a long prompt fills, and of that one."""
    text = long_text(served)
    short: list[float] = []
    long: list[float] = []
    for turn in range(rounds):
        filled: list[Reply] = []
        filling = threading.Thread(
            target=lambda: filled.append(served.stream(body(f"{turn} {text}", 2)))  # noqa: B023
        )
        filling.start()
        time.sleep(0.15 + 0.037 * (turn % 7))
        draw = random.Random(turn)
        while not filled:
            time.sleep(draw.random() * ASIDE)  # or each would come as a slice begins
            reply = served.stream(body(words(SHORT, 2000 + 100 * turn + len(short)), 2))
            if not filled:
                short.append(reply.times[0])
        filling.join()
        long.append(filled[0].times[0])
    return short, long


def stalls(served: Served, rounds: int) -> list[float]:
    """The longest wait between tokens of a stream while long prompts fill."""
    text, found = long_text(served), []
    for turn in range(rounds):
        with ThreadPoolExecutor(3) as pool:
            stream = pool.submit(served.stream, body(words(SHORT, turn), 150))
            time.sleep(0.3)
            long = [pool.submit(served.stream, body(f"{turn}{i} {text}", 2)) for i in (1, 2)]
            found.append(stream.result().stall)
            for each in long:
                each.result()
    return found


def long_text(served: Served) -> str:
    """A prompt of ``LONG`` tokens or a few more."""
    count = LONG // 2
    while served.ask("POST", "/tokenize", {"content": words(count, 3)})[1]["count"] < LONG:
        count += 16
    return words(count, 3)


def idleness(served: Served) -> int:
    """Ticks of processor time that the idle server takes."""
    time.sleep(2)
    before = served.resources()["ticks"]
    time.sleep(IDLE_SECONDS)
    return served.resources()["ticks"] - before


def measured(served: Served, rounds: int) -> dict[str, Any]:
    watch, before, began = Watch(), served.resources()["ticks"], time.perf_counter()
    rates = dict(totals(served, max(1, rounds // 3)))
    idle = first_tokens(served, 2 * rounds)
    short, long = beside_a_long_prompt(served, rounds)
    waits = stalls(served, rounds)
    found = {
        "tokens/s": rates,
        "first token, idle": described(idle),
        "first token beside a long prompt": described(short),
        "ratio": [median(short) / median(idle), max(short) / median(idle)],
        "first token of the long prompt": described(long),
        "decode stall": described(waits),
        "rates": served.health()["rates"],
    }
    others = watch.others()
    if others is not None:
        ticks = served.resources()["ticks"] - before
        seconds = (time.perf_counter() - began) * len(os.sched_getaffinity(0))
        found["others"] = round(others - ticks / os.sysconf("SC_CLK_TCK") / seconds, 3)
    return found


def described(seconds: list[float]) -> list[float]:
    return [round(median(seconds), 4), round(max(seconds), 4), len(seconds)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="intel")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--idle", action="store_true", help="measure idleness too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*", help="options of the server, after `--`")
    args = parser.parse_args()
    options = ["--device", args.device, "--lm-slots", "8", "--ctx", "2048", *args.options]
    with serving(args.model, *options) as served:
        note("ready")
        found = measured(served, args.rounds)
        if args.idle:
            found[f"idle ticks in {IDLE_SECONDS} s"] = idleness(served)
    rows = [[name, str(value)] for name, value in found.items()]
    emit(to_json(found) if args.json else table(["", "median, worst, count"], rows))


if __name__ == "__main__":
    main()
