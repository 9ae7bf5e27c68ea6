"""Waiting that ends: OpenCL's own waits have no timeout, so a thread waits in the caller's place.

A wait that runs out, or that the driver ends with an error, marks the device lost; the stuck
thread is left behind (a daemon) and every later use raises ``DeviceLost``.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Protocol

from ferro.runtime.errors import DeviceLost

STEP = 1.0  # seconds
_losses: list[str] = []


def any_lost() -> bool:
    """True once this process has lost a device, whose driver may be at work until the end."""
    return bool(_losses)


class Waitable(Protocol):
    """The part of an OpenCL event that is needed here."""

    def wait(self) -> object: ...


class _Request:
    def __init__(self, event: Waitable) -> None:
        self.event = event
        self.error: Exception | None = None
        self.done = threading.Lock()
        self.done.acquire()


class Watchdog:
    """Waits for events of one device with a timeout in seconds."""

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self.lost = ""
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()

    def check(self) -> None:
        """Raise DeviceLost if the device was lost before."""
        if self.lost:
            raise DeviceLost(f"{self.name} was lost: {self.lost}. Open it again to go on.")

    def wait(self, event: Waitable, timeout: float | None = None) -> None:
        """Return when the event is complete; raise DeviceLost on failure or timeout."""
        self.check()
        limit = self.timeout if timeout is None else timeout
        request = _Request(event)
        self._ensure_thread()
        self._requests.put(request)
        # in steps, of which one at most is lost while this process is stopped (Ctrl-Z, a debugger):
        # the device had no time then either
        left = limit
        while not request.done.acquire(timeout=min(left, STEP)):
            left -= STEP
            if left <= 0:
                raise self.lose(f"no answer within {limit:g} s")
        if request.error is not None:
            raise self.lose(str(request.error)) from request.error

    def lose(self, reason: str) -> DeviceLost:
        """Mark the device lost; returns the exception to raise."""
        self.lost = self.lost or reason
        _losses.append(self.name)
        return DeviceLost(f"{self.name} was lost: {self.lost}. Open it again to go on.")

    def close(self) -> None:
        """End the thread once what it waits for is complete."""
        with self._start:
            if self._thread is not None:
                self._requests.put(None)
                self._thread = None

    def _ensure_thread(self) -> None:
        if self._thread is None:
            with self._start:
                if self._thread is None:
                    name = f"ferro-wait-{self.name[:20]}"
                    self._thread = threading.Thread(
                        target=_serve, args=(self._requests,), name=name, daemon=True
                    )
                    self._thread.start()


def _serve(requests: SimpleQueue[_Request | None]) -> None:
    while (request := requests.get()) is not None:
        try:
            request.event.wait()
        except Exception as error:
            request.error = error
        request.done.release()
