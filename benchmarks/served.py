"""A server process of its own, and a plain client of it: what the benchmarks of serving share."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 300.0
PATH = "/v1/completions"
WORDS = "the cat sat on a mat and saw one small bird fly over two old stone walls".split()


@dataclass
class Reply:
    """What a streamed reply was, and when: ``times`` are those of its tokens, from the request
    on, in seconds."""

    status: int
    times: list[float] = field(default_factory=list)
    text: str = ""
    error: str | None = None

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
        """A reply to its end; what comes first, a role or an echo, counts for no token."""
        connection, began = self.connect(), time.perf_counter()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            reply = Reply(answer.status)
            if answer.status != 200:
                reply.error = answer.read().decode()[:200]
                return reply
            for event in events(answer):
                if "error" in event:
                    reply.error = event["error"]["message"]
                for choice in event.get("choices", []):
                    part = choice.get("text") or choice.get("delta", {}).get("content")
                    if part:
                        reply.times.append(time.perf_counter() - began)
                        reply.text += part
            return reply
        finally:
            connection.close()

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


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The server-sent events of a reply, without the last word."""
    for line in answer:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


@contextmanager
def serving(model: str, *options: str) -> Iterator[Served]:
    """``ferro serve`` on a free port, ready; its log is a file that goes with it."""
    command = [sys.executable, "-m", "ferro", "serve", model, "--port", "0", *options]
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)
        try:
            served = wait(process, Path(log.name))
            yield served
        finally:
            process.terminate()
            process.wait(60)


def wait(process: subprocess.Popen[bytes], log: Path) -> Served:
    """Until requests are taken. Raises RuntimeError with the log if that does not come."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"http://([\d.]+):(\d+)", log.read_text())
        if found is not None:
            served = Served(process, found[1], int(found[2]))
            if served.ask("GET", "/ready")[0] == 200:
                return served
        time.sleep(0.2)
    raise RuntimeError(f"the server does not get ready:\n{log.read_text()[-2000:]}")


def words(count: int, seed: int) -> str:
    """A text of so many words, another one for every seed."""
    return f"{seed} " + " ".join(WORDS[(seed * 7 + i * (1 + seed % 5)) % 17] for i in range(count))


def in_share(numbers: Sequence[float], share: float) -> float:
    """The number below which ``share`` of them lie."""
    return sorted(numbers)[min(len(numbers) - 1, int(share * len(numbers)))]
