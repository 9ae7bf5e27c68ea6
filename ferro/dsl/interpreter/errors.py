"""What can go wrong while a kernel runs in the interpreter."""

from __future__ import annotations

from ferro.dsl.diagnostics import Diagnostic


class ExecutionError(Exception):
    """A kernel did what the language forbids; ``diagnostic`` says where and what."""

    exit_code = 1  # of a command: it failed

    def __init__(self, diagnostic: Diagnostic, text: str | None = None) -> None:
        self.diagnostic = diagnostic
        self.text = text if text is not None else diagnostic.render()
        super().__init__(self.text)

    def __reduce__(self) -> tuple[type[ExecutionError], tuple[Diagnostic, str]]:
        return (type(self), (self.diagnostic, self.text))

    def __str__(self) -> str:
        return "\n" + self.text


class OutOfRangeError(ExecutionError, IndexError):
    """An access outside of a buffer by a lane that no mask switched off."""


class CollisionError(ExecutionError):
    """Two lanes or programs stored different values to one element."""
