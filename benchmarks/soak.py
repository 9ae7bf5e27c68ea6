"""Mixed traffic on a server for some minutes: memory, threads and files stay, no slot is lost.

`python -m benchmarks.soak MODEL --minutes 30`, with `--embedding FILE` and `--d1 FILE` other models
beside it. Clients stream, wait, leave early, read slowly, chat in turns, send nonsense, ask for
likelihoods and forms, and ask the same seeded question again and again, whose answer must stay; so
must vectors and decisions, whoever asks meanwhile. Exit code 1: something was lost, grew, or
changed.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from benchmarks.served import Reply, Served, events, serving, words
from ferro.report import emit, note, to_json

CLIENTS = 6
CHAT = "/v1/chat/completions"
QUESTION = {"prompt": "The weather in", "max_tokens": 12, "seed": 5, "temperature": 0.8}
SAMPLE_SECONDS = 10.0
GROWTH = 0.1  # of the resident size between the middle and the end
SPARE_FILES = 4
BAD_BODIES = (
    b"{", b"[]", b"\xff", b'{"prompt": 5}', b'{"prompt": "a", "n": -1}', b"[" * 100_000,
    b'{"prompt": "a", "temperature": "x"}', b'{"prompt": "' + b"word " * 20_000 + b'"}',
)  # fmt: skip


class Traffic:
    """Clients of a server; ``outcomes`` counts what became of their requests."""

    def __init__(self, served: Served, seed: int, beside: Sequence[str] = ()) -> None:
        """``beside`` are the kinds of the other models, "embedding" and "decision"."""
        self.served, self.seed, self.beside = served, seed, beside
        self.outcomes: Counter[str] = Counter()
        self.ending = threading.Event()
        self.expected = self.answer()
        self.known: dict[str, Any] = {}

    def client(self, number: int) -> None:
        draw = random.Random(self.seed * 1000 + number)
        kinds: list[Callable[[random.Random], str]] = [
            self.streamed, self.streamed, self.whole, self.leaving, self.slow, self.chatting,
            self.formed, self.nonsense, self.same, self.long, self.several,
        ]  # fmt: skip
        kinds += 3 * [getattr(self, kind) for kind in self.beside]
        while not self.ending.is_set():
            kind = draw.choice(kinds)
            try:
                outcome = kind(draw)
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"[:100]
            self.outcomes[f"{kind.__name__}: {outcome}"] += 1
            time.sleep(draw.random() * 0.2)

    def answer(self) -> str:
        return str(self.served.ask("POST", "/v1/completions", QUESTION)[1]["choices"][0]["text"])

    # ------------------------------------------------------------------- kinds of requests

    def streamed(self, draw: random.Random) -> str:
        tokens = draw.randrange(1, 60)
        body = {"prompt": words(draw.randrange(2, 80), draw.randrange(999)), "max_tokens": tokens}
        return told(self.served.stream(body))

    def whole(self, draw: random.Random) -> str:
        body = {"prompt": words(10, draw.randrange(99)), "max_tokens": 20, "logprobs": 3}
        return str(self.served.ask("POST", "/v1/completions", body)[0])

    def leaving(self, draw: random.Random) -> str:
        """Gone after some tokens, or before the first."""
        connection = self.served.connect()
        stream = draw.random() < 0.7
        body = {"prompt": words(draw.choice([5, 400]), draw.randrange(999)), "max_tokens": 500,
                "ignore_eos": True, "stream": stream}  # fmt: skip
        connection.request("POST", "/v1/completions", json.dumps(body))
        if stream and draw.random() < 0.6:
            answer = connection.getresponse()
            for _ in zip(range(draw.randrange(1, 15)), events(answer), strict=False):
                pass
            answer.close()
        else:
            time.sleep(draw.random())
        connection.close()
        return "left"

    def slow(self, draw: random.Random) -> str:
        connection = self.served.connect()
        body = {"prompt": words(5, draw.randrange(99)), "max_tokens": 60, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        for _ in events(answer):
            time.sleep(0.05)
        connection.close()
        return str(answer.status)

    def chatting(self, draw: random.Random) -> str:
        """Three turns, each of which goes on from what was said."""
        talk: list[dict[str, str]] = [{"role": "system", "content": words(30, draw.randrange(5))}]
        for turn in range(3):
            talk.append({"role": "user", "content": words(12, draw.randrange(999) + turn)})
            body = {"messages": talk, "max_tokens": 25}
            status, reply = self.served.ask("POST", CHAT, body)
            if status != 200:
                return str(status)
            talk.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        return "200"

    def formed(self, draw: random.Random) -> str:
        schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}},
                  "required": ["a"], "additionalProperties": False}  # fmt: skip
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        body = {"messages": [{"role": "user", "content": "A number"}], "response_format": form,
                "max_tokens": 40, "temperature": 1.0}  # fmt: skip
        status, reply = self.served.ask("POST", CHAT, body)
        if status != 200:
            return str(status)
        choice = reply["choices"][0]
        if choice["finish_reason"] == "length":
            return "cut off"
        return "fits" if list(json.loads(choice["message"]["content"])) == ["a"] else "does not fit"

    def nonsense(self, draw: random.Random) -> str:
        connection = self.served.connect()
        connection.request("POST", "/v1/completions", draw.choice(BAD_BODIES))
        status = connection.getresponse().status
        connection.close()
        return str(status)

    def same(self, draw: random.Random) -> str:
        return "same" if self.answer() == self.expected else "CHANGED"

    def long(self, draw: random.Random) -> str:
        body = {"prompt": words(draw.randrange(400, 800), draw.randrange(999)), "max_tokens": 8}
        return told(self.served.stream(body))

    def several(self, draw: random.Random) -> str:
        body = {"prompt": ["One", "Two"], "n": 2, "max_tokens": 10, "seed": draw.randrange(99)}
        return str(self.served.ask("POST", "/v1/completions", body)[0])

    def embedding(self, draw: random.Random) -> str:
        """Some texts, of which the first one is always the same and may be a long one."""
        long = draw.random() < 0.1
        texts = [words(700 if long else 9, 7), *(words(5, draw.randrange(99)) for _ in range(3))]
        status, reply = self.served.ask("POST", "/v1/embeddings", {"input": texts})
        if status != 200:
            return str(status)
        return self.stays(f"vector {long}", reply["data"][0]["embedding"])

    def decision(self, draw: random.Random) -> str:
        question = {"type": "noul", "instructions": "Is it late?"}
        other = {
            "type": "score",
            "instructions": words(9, draw.randrange(99)),
            "criteria": ["a", "b"],
        }
        asked = {"state": words(40, 3), "questions": {"same": question, "other": other}}
        status, reply = self.served.ask("POST", "/v1/systemone", asked)
        return self.stays("decision", reply["answers"]["same"]) if status == 200 else str(status)

    def stays(self, name: str, found: Any) -> str:
        return "same" if self.known.setdefault(name, found) == found else "CHANGED"


def told(reply: Reply) -> str:
    return reply.error if reply.error and reply.status == 200 else str(reply.status)


def soaked(served: Served, minutes: float, seed: int, beside: Sequence[str] = ()) -> dict[str, Any]:
    traffic = Traffic(served, seed, beside)
    clients = [threading.Thread(target=traffic.client, args=(n,)) for n in range(CLIENTS)]
    samples = [served.resources()]
    for client in clients:
        client.start()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end and served.process.poll() is None:
        time.sleep(SAMPLE_SECONDS)
        samples.append(served.resources())
        note(f"{samples[-1]} {sum(traffic.outcomes.values())} requests")
    traffic.ending.set()
    for client in clients:
        client.join()
    time.sleep(2)
    samples.append(served.resources())
    health = served.health()
    return {
        "minutes": minutes,
        "start": samples[0],
        "middle": samples[len(samples) // 2],
        "end": samples[-1],
        "most": {name: max(sample[name] for sample in samples) for name in samples[0]},
        "outcomes": dict(sorted(traffic.outcomes.items())),
        "same answer": traffic.answer() == traffic.expected,
        "slots": health["slots"],
        "waiting": health["waiting"],
        "totals": health["totals"],
        "prefix_cache": health["prefix_cache"],
    }


def problems(found: dict[str, Any]) -> list[str]:
    """What must not be."""
    middle, end, start = found["middle"], found["end"], found["start"]
    said = []
    if found["slots"]["active"] or found["waiting"]:
        said.append("a slot was lost")
    if not found["same answer"] or any("CHANGED" in key for key in found["outcomes"]):
        said.append("an answer changed")
    if end["rss"] > middle["rss"] * (1 + GROWTH):
        said.append("the memory grows")
    if end["threads"] > middle["threads"] + 1:
        said.append("threads are left")
    if end["files"] > start["files"] + SPARE_FILES:
        said.append("files are left open")
    known = ("200", "left", "400", "413", "503", "fits", "cut off", "same")
    said += [key for key in found["outcomes"] if not key.endswith(known)]
    return said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--embedding", metavar="FILE", help="an embedding model beside it")
    parser.add_argument("--d1", metavar="FILE", help="a decision model beside it")
    parser.add_argument("--device", default="intel")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    others = {"embedding": ("--model", args.embedding), "decision": ("--d1", args.d1)}
    there = {kind: option for kind, option in others.items() if option[1]}
    options = ["--device", args.device, "--ctx", "2048", *chain(*there.values())]
    with serving(args.model, *options) as served:
        found = soaked(served, args.minutes, args.seed, tuple(there))
    emit(to_json(found))
    said = problems(found)
    for problem in said:
        emit(f"problem: {problem}")
    return bool(said)


if __name__ == "__main__":
    raise SystemExit(main())
