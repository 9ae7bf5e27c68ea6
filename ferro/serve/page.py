"""``GET /chat``: one page that asks for nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def chat_page(request: Request) -> Response:
    return Response(_page(), media_type="text/html", headers=HEADERS)


@cache
def _page() -> bytes:
    return Path(__file__).with_name("chat.html").read_bytes()
