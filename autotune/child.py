"""The parent's side of a trial: a process that is asked, waited for, replaced when it is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import IO, Any

from autotune.candidates import Candidate
from autotune.messages import Check, Checked, Job, Time
from ferro.runtime.children import environment

WORKER = "autotune.worker"
PATIENCE = 5.0  # seconds for a killed process to be gone
START = 120.0  # seconds for a process to load what it needs and open the device


class Lost(Exception):
    """The child died or gave no answer in time."""


class Child:
    """Runs trials of one job. Starts a process when there is none; knows what it has checked."""

    def __init__(self, job: Job, timeout: float) -> None:
        self.job, self.timeout = job, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Connection | None = None
        self._errors: IO[bytes] | None = None
        self._checked: set[str] = set()

    def check(self, candidate: Candidate) -> Checked:
        """Build and compare bits. Raises Lost."""
        found = self._ask(Check(candidate.kernel, candidate.config))
        if not found.failure and not any(found.differing.values()):
            self._checked.add(candidate.name)
        return found

    def time(self, candidate: Candidate, seconds: float) -> list[float]:
        """Device seconds of some launches of a candidate that is ready. Raises Lost."""
        return self._ask(Time(candidate.config, seconds))

    def ready(self, candidate: Candidate) -> bool:
        """True if the process of now has checked it."""
        return candidate.name in self._checked

    def close(self) -> None:
        """End the process. One that a driver holds fast is left to itself."""
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        for end in (self._channel, self._errors):
            if end is not None:
                end.close()
        self._process = self._channel = self._errors = None
        self._checked.clear()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: Check | Time) -> Any:
        channel = self._channel or self._start()
        return self._exchange(channel, request, self.timeout)

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        command = [sys.executable, "-m", WORKER, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment(),
            )
        self._channel = Connection(ours.detach())
        self._exchange(self._channel, self.job, START)
        return self._channel

    def _exchange(self, channel: Connection, message: object, timeout: float) -> Any:
        try:
            channel.send(message)
            if answered(channel, timeout):
                return channel.recv()
            reason = f"no answer within {timeout:g} s"
        except (EOFError, OSError):
            reason = self._last_words()
        self.close()
        raise Lost(reason)

    def _last_words(self) -> str:
        """How the process ended: the last line that it wrote, else its status."""
        assert self._process is not None and self._errors is not None
        try:
            status = f"the process ended with status {self._process.wait(PATIENCE)}"
        except subprocess.TimeoutExpired:
            status = "the process closed its channel"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{status}: {lines[-1].strip()[:200]}" if lines else status


def answered(channel: Connection, timeout: float) -> bool:
    """True as soon as there is an answer, False after ``timeout`` seconds.

    Waits a second at a time: whoever stops parent and child (Ctrl-Z) takes one of them, not all.
    """
    while timeout > 0:
        if channel.poll(min(timeout, 1.0)):
            return True
        timeout -= 1.0
    return False
