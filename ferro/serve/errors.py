"""Errors as OpenAI's API has them: a status, and a body with message, type, param and code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """What a request is answered with that cannot be served."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        other = "invalid_request_error" if self.status < 500 else "server_error"
        kind = TYPES.get(self.status, other)
        found = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": found}


def bad(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The error of a request that makes no sense."""
    return ApiError(400, message, param=param, code=code)
