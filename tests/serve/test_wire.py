"""What is no HTTP, lies about its length, or dawdles: an error or a closed connection, and the
same answer afterwards as before."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.serve.fakes import until
from tests.serve.served_fake import HEAD_SECONDS
from tests.serve.test_process import Served, serving

BODY = json.dumps({"prompt": "word", "max_tokens": 2, "ignore_eos": True, "temperature": 0})
POST = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
WHOLE = f"{POST}Content-Length: {len(BODY)}\r\n\r\n{BODY}"
CODED = "Transfer-Encoding: chunked\r\n\r\n"
CHUNKED = POST + CODED


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(0.001) as found:
        yield found


def exchange(served: Served, data: bytes, shut: bool = False, seconds: float = 20) -> bytes:
    """Everything that comes back until the other side closes, or a while after it was silent."""
    host, port = served.url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=seconds) as made:
        try:
            made.sendall(data)
            if shut:
                made.shutdown(socket.SHUT_WR)
            while part := made.recv(1 << 16):
                received += part
        except (ConnectionError, TimeoutError):
            pass
    return received


def answer(served: Served) -> str:
    reply = httpx.post(served.url + "/v1/completions", content=BODY, timeout=30)
    return str(reply.json()["choices"][0]["text"])


NO_HTTP = {
    "garbage": bytes(range(256)) * 4,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200,
    "many headers": POST.encode() + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)),
    "a long header": POST.encode() + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "a long path": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a negative length": (POST + "Content-Length: -1\r\n\r\n").encode(),
    "a length that is none": (POST + "Content-Length: 1e3\r\n\r\n").encode(),
    "two lengths": (POST + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n").encode(),
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "an unknown coding": (POST + "Transfer-Encoding: gzip\r\n\r\n").encode(),
    "a path of bytes": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_request_is_400_in_json(served: Served, data: bytes) -> None:
    before = answer(served)
    head, _, body = exchange(served, data).partition(b"\r\n\r\n")
    if head:  # what is much too long may be cut off before the answer is read
        assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), head
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert answer(served) == before and served.idle()


LIES = {
    "a chunk that is none": CHUNKED + "zz\r\n",
    "a chunk of a terabyte": CHUNKED + "ffffffffff\r\n" + "x" * 100,
    "chunks that end early": CHUNKED + "5\r\nab",
    "a body that ends early": f"{POST}Content-Length: 500\r\n\r\n{BODY}",
    "a length beyond the limit": f"{POST}Content-Length: {10**17}\r\n\r\n{BODY}",
    "chunks and a length": f"{POST}Content-Length: 3\r\n{CODED}0\r\n\r\n",
}


@pytest.mark.parametrize("text", LIES.values(), ids=LIES.keys())
def test_lies_about_lengths_are_no_requests(served: Served, text: str) -> None:
    before = answer(served)
    received = exchange(served, text.encode(), shut=True)
    assert b"HTTP/1.1 200" not in received and b"HTTP/1.1 500" not in received
    assert answer(served) == before and served.idle()


def test_requests_in_one_packet_are_answered_in_their_order(served: Served) -> None:
    last = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    received = exchange(served, (WHOLE + WHOLE + last).encode())
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.index(b"text_completion") < received.rindex(b'"devices_lost"')


def test_a_body_may_be_announced(served: Served) -> None:
    head = f"{POST}Content-Length: {len(BODY)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    assert b"text_completion" in exchange(served, (head + BODY).encode())


def test_who_dawdles_with_a_head_is_dropped(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=60) as made:
        sent = 0
        try:
            while time.monotonic() - began < 10 * HEAD_SECONDS:
                made.sendall(POST[sent : sent + 1].encode() or b"X: y\r\n")
                sent += 1
                time.sleep(HEAD_SECONDS / 10)
        except ConnectionError:
            pass
    assert time.monotonic() - began < 5 * HEAD_SECONDS


def test_a_burst_of_connections_leaves_no_file_open(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    made = [socket.create_connection((host, int(port))) for _ in range(200)]
    for one in made[::2]:
        one.sendall(POST.encode())
    assert answer(served)
    for one in made:
        one.close()
    until(lambda: len(served.files()) < 30)
