"""What is wrong with a request for decisions, by status and type as llama.cpp's server has them."""

from __future__ import annotations

INVALID = "invalid_request_error"
CONTEXT = "exceed_context_size_error"
UNSUPPORTED = "not_supported_error"
SERVER = "server_error"


class DecisionError(Exception):
    """A request that gets no answers. ``status`` is HTTP's, ``kind`` the error's type."""

    def __init__(self, message: str, status: int = 400, kind: str = INVALID) -> None:
        super().__init__(message)
        self.message, self.status, self.kind = message, status, kind

    @property
    def exit_code(self) -> int:
        """Of a command: a fault of the request, or of the model."""
        return 1 if self.kind == SERVER else 2


def unsupported(message: str) -> DecisionError:
    """What this model, or this server, cannot do."""
    return DecisionError(message, 501, UNSUPPORTED)


def broken(message: str) -> DecisionError:
    """What is not the request's fault."""
    return DecisionError(message, 500, SERVER)
