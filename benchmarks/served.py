"""A server process of its own, and a plain client of it: what the benchmarks of serving share."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 300.0
PATH = "/v1/completions"
WORDS = "the cat sat on a mat and saw one small bird fly over two old stone walls".split()


@dataclass
class Reply:
    """What a streamed reply was, and when: ``times`` are those of its pieces of text, from the
    request on, in seconds; ``tokens`` as the server counted them."""

    status: int
    times: list[float] = field(default_factory=list)
    text: str = ""
    tokens: int = 0
    error: str | None = None

    def hear(self, event: Mapping[str, Any], time: float) -> None:
        """What comes first, a role or an echo, counts for no token."""
        if "error" in event:
            self.error = event["error"]["message"]
        self.tokens = event.get("timings", {}).get("predicted_n", self.tokens)
        for choice in event.get("choices", []):
            part = choice.get("text") or choice.get("delta", {}).get("content")
            if part:
                self.times.append(time)
                self.text += part

    @property
    def stall(self) -> float:
        """The longest wait between two tokens."""
        return max((b - a for a, b in zip(self.times, self.times[1:], strict=False)), default=0.0)


@dataclass
class Served:
    """A server under way."""

    process: subprocess.Popen[Any]
    host: str
    port: int

    def connect(self, timeout: float = 600.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of a whole reply."""
        connection = self.connect()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data)
            reply = connection.getresponse()
            content = reply.read()
            kind = reply.headers.get_content_type()
            return reply.status, json.loads(content) if kind == "application/json" else content
        finally:
            connection.close()

    def stream(self, body: Mapping[str, Any], path: str = PATH) -> Reply:
        """A reply to its end. It is read when it has come, so that reading disturbs little."""
        connection, began = self.connect(), time.perf_counter()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            reply = Reply(answer.status)
            if answer.status != 200:
                reply.error = answer.read().decode()[:200]
                return reply
            parts = []
            while part := answer.read1():
                parts.append((time.perf_counter() - began, part))
        finally:
            connection.close()
        for moment, line in lines(parts):
            for event in events([line]):
                reply.hear(event, moment)
        return reply

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/health")[1]
        return found

    def resources(self) -> dict[str, int]:
        """Resident kilobytes, threads, open files, and processor ticks so far (of Linux)."""
        folder = Path(f"/proc/{self.process.pid}")
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if line
        )
        after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        return {
            "rss": int(status["VmRSS"].split()[0]),
            "threads": int(status["Threads"]),
            "files": len(list((folder / "fd").iterdir())),
            "ticks": int(after_name[11]) + int(after_name[12]),
        }


def lines(parts: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The lines of what came in parts, and when the last of each was there."""
    rest = b""
    for moment, part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield moment, line


def events(answer: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The server-sent events in the lines of a reply, without the last word."""
    for line in answer:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


def serving(model: str, *options: str) -> AbstractContextManager[Served]:
    """``ferro serve``, ready."""
    return started([sys.executable, "-m", "ferro", "serve", model, *options], "/ready")


@contextmanager
def started(command: Sequence[str], ready: str) -> Iterator[Served]:
    """A server on a free port, once a request to the path ``ready`` is answered with 200; its log
    is a file that goes with it."""
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen([*command, "--port", "0"], stderr=log, stdout=log)
        try:
            yield wait(process, Path(log.name), ready)
        finally:
            process.terminate()
            process.wait(60)


def wait(process: subprocess.Popen[bytes], log: Path, ready: str) -> Served:
    """Until requests are taken. Raises RuntimeError with the log if that does not come."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"http://([\d.]+):(\d+)", log.read_text(errors="replace"))
        if found is not None:
            served = Served(process, found[1], int(found[2]))
            if served.ask("GET", ready)[0] == 200:
                return served
        time.sleep(0.2)
    raise RuntimeError(f"the server does not get ready:\n{log.read_text()[-2000:]}")


def words(count: int, seed: int) -> str:
    """A text of so many words, another one for every seed."""
    return f"{seed} " + " ".join(WORDS[(seed * 7 + i * (1 + seed % 5)) % 17] for i in range(count))


def in_share(numbers: Sequence[float], share: float) -> float:
    """The number below which ``share`` of them lie."""
    return sorted(numbers)[min(len(numbers) - 1, int(share * len(numbers)))]
