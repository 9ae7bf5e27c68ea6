"""The chat page: whole in itself, and what it asks the server for is there."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from ferro.serve.app import ALWAYS, SERVED


def test_the_page_asks_for_nothing_from_elsewhere(client: TestClient) -> None:
    reply = client.get("/chat")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert not re.search(r"https?:|\bsrc=|<link|@import|url\(", reply.text)


def test_what_the_page_asks_for_is_there(client: TestClient) -> None:
    paths = re.findall(r'fetch\("([^"]+)"', client.get("/chat").text)
    assert len(paths) == 3 and all(f"/{path}" in SERVED | ALWAYS for path in paths)


def test_the_page_puts_no_text_into_markup(client: TestClient) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(",
                         client.get("/chat").text)  # fmt: skip
