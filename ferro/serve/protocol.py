"""Connections: uvicorn's, with a limit to how long the head of a request may take, and errors of
the wire in OpenAI's form."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ferro.serve.bodies import dumped
from ferro.serve.errors import bad

HEAD_SECONDS = 30.0


class Protocol(H11Protocol):
    """Closes a connection on which no whole head of a request comes within ``HEAD_SECONDS``, so
    that those who dawdle hold no file open for ever."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Count from when a head began; a request that is here has its own time."""
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What was sent is no HTTP, or its head is longer than 64 KiB."""
        body = dumped(bad("this is no HTTP request that can be read").body())
        head = (
            "HTTP/1.1 400 Bad Request",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()
