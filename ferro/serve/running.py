"""The bridge from the engine's thread to the event loop: jobs of one request, and their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from starlette.types import Receive

from ferro.models.completion import BadRequest
from ferro.models.sampler import BadSampling
from ferro.serve.errors import ApiError, bad
from ferro.serve.jobs import Encoded, Encoding, Ended, Event, Failed, Job, Task, Token
from ferro.serve.lanes import CLOSED, NUMBERS, TIMEOUT, Busy, Closing, Lane

STATUS = {TIMEOUT: 504, CLOSED: 503, NUMBERS: 500}


class Gone(Exception):
    """The client is not there any more."""


class Running:
    """Jobs that were submitted together. Choices are numbered through: those of the second task
    come after those of the first. Make it in the event loop."""

    def __init__(self, lane: Lane, tasks: Sequence[Task] | Sequence[Encoding]) -> None:
        """Raises ApiError."""
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.lane = lane
        self.jobs: list[Job] = []
        self.choices = sum(task.choices for task in tasks)
        first = 0
        try:
            for task in tasks:
                job = Job(task, self._listener(first))
                lane.submit(job)
                self.jobs.append(job)
                first += task.choices
        except (BadRequest, BadSampling) as error:
            self.cancel()
            raise bad(str(error)) from None
        except Busy as error:
            self.cancel()
            raise ApiError(
                503, str(error), code="busy", headers={"Retry-After": str(error.retry_after)}
            ) from None
        except Closing as error:
            self.cancel()
            raise ApiError(503, str(error), code="closed") from None

    def cancel(self) -> None:
        """Give all of it up, if it is not over."""
        for job in self.jobs:
            if not job.over:
                job.cancel()

    def leave(self) -> None:
        """The client is gone."""
        self.cancel()
        self._events.put_nowait(None)

    async def events(
        self, ping_seconds: float | None = None
    ) -> AsyncIterator[Token | Ended | Encoded | None]:
        """What happens, to the end of the last choice; None where nothing did for ``ping_seconds``.
        Raises ApiError where a job failed, Gone where the client left."""
        left = self.choices
        while left:
            try:
                event = await asyncio.wait_for(self._events.get(), ping_seconds)
            except TimeoutError:
                yield None
                continue
            if event is None:
                raise Gone
            if isinstance(event, Failed):
                raise ApiError(STATUS.get(event.reason, 503), event.message, code=event.reason)
            left -= isinstance(event, Ended | Encoded)
            yield event

    def _listener(self, first: int) -> Callable[[Event], None]:
        def heard(event: Event) -> None:
            if first and not isinstance(event, Failed):
                event = replace(event, choice=event.choice + first)
            with suppress(RuntimeError):  # the loop may be closed before the last event
                self._loop.call_soon_threadsafe(self._events.put_nowait, event)

        return heard


@asynccontextmanager
async def attended(running: Running, receive: Receive) -> AsyncIterator[None]:
    """Watches the client while a request is served, and gives the jobs up when it leaves."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        running.leave()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        running.cancel()
