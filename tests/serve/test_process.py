"""A server behind a real socket: clients that leave, signals, many connections."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.fakes import until

ROOT = Path(__file__).parents[2]
LONG = {"prompt": "word " * 300, "max_tokens": 1000, "ignore_eos": True, "temperature": 0}


@dataclass
class Served:
    process: subprocess.Popen[str]
    url: str
    lines: list[str]

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=30).json()

    def idle(self) -> bool:
        health = self.get("/health")
        return not health["slots"]["active"] and not health["waiting"]

    def files(self) -> list[Path]:
        """What the process has open."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        if not folder.is_dir():
            pytest.skip("no /proc")
        return list(folder.iterdir())

    def resident(self) -> int:
        """Bytes of memory that the process has."""
        file = Path(f"/proc/{self.process.pid}/statm")
        if not file.is_file():
            pytest.skip("no /proc")
        return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self, body: dict[str, Any], receives: int | None = None) -> socket.socket:
        """A connection on which a request was sent, and nothing read: it ``receives`` no more
        bytes than that."""
        data = json.dumps(body).encode()
        host, port = self.url.removeprefix("http://").split(":")
        made = socket.socket()
        if receives is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        made.connect((host, int(port)))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        made.sendall(head.encode() + data)
        return made


@contextmanager
def serving(seconds: float, *keys: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "tests.serve.served_fake", str(seconds), *keys]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")))
    reader.start()
    try:
        until(lambda: any("ready:" in line for line in lines) or process.poll() is not None)
        url = re.search(r"http://[\d.:]+", "".join(lines))
        assert url is not None, lines
        yield Served(process, url[0], lines)
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(0.01) as found:
        yield found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("moment", ["prefill", "decode"])
def test_a_client_that_leaves_frees_its_slot(served: Served, stream: bool, moment: str) -> None:
    body = {**LONG, "stream": stream}
    if moment == "decode":
        body["prompt"] = "word"
    client = served.connect(body)
    until(lambda: served.get("/health")["slots"]["active"])
    before = served.get("/health")["totals"]["cancelled"]
    client.close()
    started = time.monotonic()
    until(served.idle)
    assert time.monotonic() - started < 5
    assert served.get("/health")["totals"]["cancelled"] == before + 1


def test_more_connections_than_slots_are_served(served: Served) -> None:
    def ask(number: int) -> tuple[int, int]:
        body = {"prompt": f"number {number}", "max_tokens": 3, "ignore_eos": True}
        reply = httpx.post(served.url + "/v1/completions", json=body, timeout=60)
        return reply.status_code, reply.json()["usage"]["completion_tokens"]

    with ThreadPoolExecutor(32) as pool:
        assert set(pool.map(ask, range(32))) == {(200, 3)}
    assert served.idle()


def test_sixty_four_connections_have_their_turns(served: Served) -> None:
    """Answered, or told when to come again; who came first does not wait for who came last."""

    def ask(number: int) -> tuple[int, float]:
        body = {"prompt": f"number {number}", "max_tokens": 4, "ignore_eos": True}
        reply = httpx.post(served.url + "/v1/completions", json=body, timeout=120)
        assert reply.status_code == 200 or int(reply.headers["retry-after"]) >= 1
        return reply.status_code, time.monotonic()

    with ThreadPoolExecutor(64) as pool:
        done = list(pool.map(ask, range(64)))
    assert {status for status, _ in done} <= {200, 503}
    assert sum(status == 200 for status, _ in done) >= 34  # two slots, a queue of 32
    assert served.idle()


def test_slow_readers_take_little_memory() -> None:
    body = {**LONG, "prompt": "word", "max_tokens": 400, "n": 2, "logprobs": 5, "stream": True}
    with serving(0.0) as served:
        before = served.resident()
        slow = [served.connect(body, receives=4096) for _ in range(3)]
        until(lambda: served.get("/health")["totals"]["requests"] == 3 and served.idle(), 120)
        assert served.resident() - before < 64 << 20
        for client in slow:
            client.close()


def test_keys_are_read_again_on_a_hangup(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("me: first-key\n")
    with serving(0.001, str(file)) as served:

        def status(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.get(served.url + "/v1/models", headers=headers, timeout=30).status_code

        assert (status("first-key"), status("second-key")) == (200, 401)
        file.write_text("you: second-key\n")
        served.process.send_signal(signal.SIGHUP)
        until(lambda: status("second-key") == 200)
        assert status("first-key") == 401
        file.write_text("\n")
        served.process.send_signal(signal.SIGHUP)
        until(lambda: any("keys are as they were" in line for line in served.lines))
        assert status("second-key") == 200
        assert not any("-key" in line for line in served.lines)


def test_a_slow_reader_holds_nobody_up(served: Served) -> None:
    slow = served.connect({**LONG, "prompt": "word", "stream": True})
    body = {"prompt": "quick", "max_tokens": 3, "ignore_eos": True}
    assert httpx.post(served.url + "/v1/completions", json=body, timeout=30).status_code == 200
    slow.close()
    until(served.idle)


def test_requests_are_logged_without_what_was_said(served: Served) -> None:
    body = {"prompt": "a secret", "max_tokens": 2, "ignore_eos": True}
    httpx.post(served.url + "/v1/completions", json=body, timeout=30)
    until(lambda: any("tokens=2" in line for line in served.lines))
    assert not any("secret" in line for line in served.lines)


def test_a_termination_ends_open_streams_and_the_process() -> None:
    with serving(0.01) as served:
        body = {**LONG, "prompt": "word", "stream": True}
        with httpx.stream("POST", served.url + "/v1/completions", json=body, timeout=30) as reply:
            lines = reply.iter_lines()
            assert next(lines).startswith("data: ")
            served.process.send_signal(signal.SIGTERM)
            events = [line for line in lines if line.startswith("data: ")]
        assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "closed"
        assert events[-1] == "data: [DONE]"
        assert served.process.wait(10) == 0
