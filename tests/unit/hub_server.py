"""A Hugging Face hub on this machine: one repository, one file, and what may go wrong."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPOSITORY, FILE = "someone/tiny-GGUF", "tiny.gguf"
# The library writes a download down in pieces of 10 MB: so much has to come before it is cut off.
DATA = b"GGUF" + bytes(range(256)) * 94000
PIECE = 1 << 20


class Hub:
    """What the server does. ``refusal``: a status and the hub's code for every request; ``ends``:
    where the next answers end, one after the other, ``stalls``: where they stand still instead;
    ``sent``: what is sent in place of the file. ``starts`` collects where downloads began."""

    def __init__(self) -> None:
        self.refusal: tuple[int, str] | None = None
        self.ends: list[int] = []
        self.stalls = False
        self.sent = DATA
        self.starts: list[int] = []
        self.closing = threading.Event()
        self.endpoint = ""


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            if not self._refused():
                self._begin(200, len(DATA))

        def do_GET(self) -> None:
            if self._refused():
                return
            wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(wanted[1]) if wanted else 0
            hub.starts.append(start)
            self._begin(206 if start else 200, len(DATA) - start, start)
            end = hub.ends.pop(0) if hub.ends else len(hub.sent)
            with suppress(OSError):  # the other end may be gone
                for at in range(start, end, PIECE):
                    self.wfile.write(hub.sent[at : min(at + PIECE, end)])
            if end < len(hub.sent) and hub.stalls:
                hub.closing.wait(60)
            self.close_connection = True

        def _refused(self) -> bool:
            path = f"/{REPOSITORY}/resolve/main/{FILE}"
            refusal = hub.refusal if path in self.path else (404, "EntryNotFound")
            if refusal is None:
                return False
            self.send_response(refusal[0])
            self.send_header("X-Error-Code", refusal[1])
            self.send_header("X-Error-Message", f"{refusal[1]} of a test")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return True

        def _begin(self, status: int, size: int, start: int = 0) -> None:
            self.send_response(status)
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hashlib.sha256(DATA).hexdigest()}"')
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(size))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.closing.set()
            server.shutdown()
