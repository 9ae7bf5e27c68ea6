"""Runs a chat template in a process of its own, which is ended when it takes too long.

A template can ask for any amount of time and memory; only the end of its process stops all of it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from ferro.models.template_traits import Traits

WORKER = "ferro.models.template_worker"
SECONDS = 5.0  # for a request
START_SECONDS = 60.0  # for a Python that starts on a slow or busy machine
MOST_BYTES = 1 << 26  # of an answer
NAME = "the chat template"
DIED = "its process died; it may have taken too much memory"


class TemplateError(Exception):
    """A chat template that cannot be used, or that refused a conversation: the user's to solve."""

    exit_code = 2


class Renderer:
    """One template. Starts its process at once and again after it was ended; threads take turns."""

    def __init__(
        self,
        source: str,
        seconds: float = SECONDS,
        name: str = NAME,
        worker: Worker | None = None,
    ) -> None:
        """``seconds`` is the most that a request may take; errors begin with ``name``; ``worker``
        is a process that was started before, for this renderer alone."""
        self._source, self._seconds, self._name = source, seconds, name
        self._lock = threading.Lock()
        self._worker: Worker | None = worker or Worker()
        self._traits: Traits | None = None

    @property
    def traits(self) -> Traits:
        """What the template can take. Raises TemplateError if it cannot be read."""
        with self._lock:
            if self._traits is None:
                self._opened()
            assert self._traits is not None
            return self._traits

    def render(self, variables: Mapping[str, Any], now: float | None = None) -> str:
        """The template's text with ``variables``, which must fit in JSON; ``now`` is the time that
        it may ask for. Raises TemplateError with the template's own message, or with what the
        matter is."""
        with self._lock:
            worker = self._opened()
            answer = self._ask(worker, {"variables": variables, "now": now})
        if "failed" in answer:
            raise TemplateError(f"{self._name}: {answer['failed']}")
        text = answer.get("text")
        if not isinstance(text, str):
            raise TemplateError(f"{self._name}: its process gave no text")
        return text

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def _opened(self) -> Worker:
        """The process, with the template read."""
        worker = self._worker = self._worker or Worker()
        if not worker.ready:
            self._answer(worker, START_SECONDS)
            told = self._ask(worker, {"source": self._source})
            if "bad" in told:
                raise self._lost(f"it cannot be read: {told['bad']}")
            self._traits = Traits(**told["traits"])
            worker.ready = True
        return worker

    def _ask(self, worker: Worker, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            data = json.dumps(request).encode()
        except (TypeError, ValueError) as error:
            raise TemplateError(f"variables of a template must fit in JSON: {error}") from None
        try:
            worker.channel.send_bytes(data)
        except OSError:
            raise self._lost(DIED) from None
        return self._answer(worker, self._seconds)

    def _answer(self, worker: Worker, seconds: float) -> dict[str, Any]:
        try:
            if not worker.channel.poll(seconds):
                raise self._lost(f"it took over {seconds:g} s and was ended")
            answer = json.loads(worker.channel.recv_bytes(MOST_BYTES))
        except (EOFError, OSError, ValueError):
            raise self._lost(DIED) from None
        return answer if isinstance(answer, dict) else {}

    def _lost(self, reason: str) -> TemplateError:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        return TemplateError(f"{self._name}: {reason}")


class Worker:
    """The process and the channel to it. It needs about 0.15 s to start, in which it needs no
    template."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                process_group=0,  # Ctrl-C at the terminal is for us
            )
        self.channel = Connection(ours.detach())
        self.ready = False
        self.close = weakref.finalize(self, _end, process, self.channel)


def _end(process: subprocess.Popen[bytes], channel: Connection) -> None:
    channel.close()
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _environment() -> dict[str, str]:
    """What the process needs to start, to import what we have imported and to tell the time."""
    names = ("TZ", "PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
