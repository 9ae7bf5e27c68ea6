"""API keys: labelled, compared in constant time, never written anywhere."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ferro.serve.bodies import Json
from ferro.serve.errors import ApiError

OPEN_PATHS = ("/health", "/v1/health", "/ready", "/chat")


class BadKeys(ValueError):
    """Keys that cannot be used."""

    exit_code = 2


class Keys:
    """Keys of the command line and of a file, which ``reload`` reads again. With none at all,
    everybody may come in."""

    def __init__(self, given: Sequence[str] = (), file: str | None = None) -> None:
        """Each is ``label: key`` or a bare key. Raises BadKeys, OSError."""
        self._given = [parsed(text, "a key") for text in given]
        self._file = None if file is None else Path(file)
        self._known: list[tuple[str, bytes]] = []
        self.reload()

    def __bool__(self) -> bool:
        return bool(self._known)

    def reload(self) -> None:
        """Read the file again; what was known holds if that fails. Raises BadKeys, OSError."""
        known = list(self._given)
        if self._file is not None:
            lines = (line.strip() for line in _text(self._file).splitlines())
            numbered = [(i, line) for i, line in enumerate(lines, 1) if line and line[0] != "#"]
            known += [parsed(line, f"{self._file}: line {i}") for i, line in numbered]
            if not known:
                raise BadKeys(f"{self._file}: there is no key in it")
        self._known = known

    def label(self, key: str) -> str | None:
        """Who has ``key``, a header's text; None if nobody has."""
        data, found = key.encode("latin-1", "replace"), None
        for label, known in self._known:
            # all of them are compared, so that the time tells nothing
            if hmac.compare_digest(known, data):
                found = label
        return found


def _text(file: Path) -> str:
    """Raises BadKeys, OSError."""
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadKeys(f"{file}: byte {error.start} is no UTF-8") from None


def parsed(text: str, what: str) -> tuple[str, bytes]:
    """Label and key. Raises BadKeys."""
    label, separator, key = text.rpartition(":")
    key = key.strip()
    if not key or any(c.isspace() for c in key):
        raise BadKeys(f"{what}: it must be `KEY` or `LABEL: KEY`, a key without spaces")
    return (label.strip() if separator and label.strip() else "key"), key.encode()


class Guarded:
    """Lets requests in that have a key: ``Authorization: Bearer KEY`` or ``x-api-key: KEY``."""

    def __init__(self, app: ASGIApp, keys: Keys, open_paths: Sequence[str] = OPEN_PATHS) -> None:
        self._app, self._keys, self._open = app, keys, frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._keys and scope["path"] not in self._open:
            headers = Headers(scope=scope)
            scheme, _, token = headers.get("authorization", "").partition(" ")
            key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
            label = self._keys.label(key) if key else None
            if label is None:
                said = "the API key is not known here" if key else "an API key is needed"
                error = ApiError(
                    401, said, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
                )
                await Json(error.body(), 401, headers=error.headers)(scope, receive, send)
                return
            scope.setdefault("state", {})["key"] = label
        await self._app(scope, receive, send)
