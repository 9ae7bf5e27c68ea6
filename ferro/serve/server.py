"""The process: a socket, the model that is loaded behind it, signals, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType

import uvicorn

from ferro.runtime.errors import DeviceError
from ferro.serve.app import make_app, put_service
from ferro.serve.engine import Models
from ferro.serve.keys import Keys
from ferro.serve.protocol import Protocol
from ferro.serve.service import Service
from ferro.serve.settings import Settings

log = logging.getLogger("ferro.serve")
# opens the models; the number is how often their device was lost
Load = Callable[[int], AbstractContextManager[Models]]
GRACE = 5.0  # seconds for last events to reach their readers


class CannotListen(OSError):
    """An address that is taken or is none."""

    exit_code = 2


class Server(uvicorn.Server):
    """uvicorn's, which ends with a graceful 0, and tells when it begins to."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second whether it should end: an idle server does
        nothing but tell the time for its headers, once a second."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), 1.0)

    def end(self) -> None:
        """Serve no more; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._woken.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets requests end, the second one does not."""
        self.force_exit = self.should_exit
        self.end()
        self._ending()


class Process:
    """Serves what ``load`` gives, which is loaded while the socket answers that it is."""

    def __init__(self, load: Load, settings: Settings, keys: Keys) -> None:
        self._load, self._settings, self._keys = load, settings, keys
        self.app = make_app(settings=settings, keys=keys)
        config = uvicorn.Config(
            self.app,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(settings.shutdown_seconds + GRACE),
        )
        self._server = Server(config, self._begin_end)
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def run(self, host: str, port: int) -> None:
        """Until a signal. Raises CannotListen, and whatever loading raises."""
        with listening(host, port) as listener:
            name = f"[{host}]" if ":" in host else host
            log.info("listening on http://%s:%d", name, listener.getsockname()[1])
            loader = threading.Thread(target=self._serve, name="ferro-loader", daemon=True)
            loader.start()
            with hangup(self._reload_keys):
                self._server.run(sockets=[listener])
            self._over.set()
            loader.join(self._settings.shutdown_seconds + GRACE)
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        """Load, serve, wait for the end: one thread, whose memory is given back by it."""
        try:
            with Opened(self._load) as opened:
                models = opened.models(0)
                if self._over.is_set():
                    return
                service = Service(models, self._settings, opened.models)
                service.start()
                put_service(self.app, service)
                names = ", ".join(f"{each.name} ({each.kind})" for each in service.served)
                log.info("ready: %s on %s", names, service.device.info)
                self._over.wait()
                service.close()
        except BaseException as error:
            self._failure = error
            self._server.end()

    def _begin_end(self) -> None:
        """Take no more requests; after a while end those that go on."""
        service = self.app.state.service
        if service is None:
            self._over.set()
            return
        # not here: a signal may come while this thread holds the lock of the queue
        threading.Thread(target=service.engine.drain, daemon=True).start()
        timer = threading.Timer(self._settings.shutdown_seconds, service.engine.close)
        timer.daemon = True
        timer.start()

    def _reload_keys(self) -> None:
        try:
            self._keys.reload()
            log.info("keys were read again")
        except (OSError, ValueError) as error:
            log.error("the keys are as they were: %s", error)


class Opened(contextlib.ExitStack):
    """The models that are open, on one device at a time."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self._load = load

    def models(self, losses: int) -> Models:
        """Open them, after those before were closed as far as that goes."""
        with contextlib.suppress(DeviceError):
            self.close()
        return self.enter_context(self._load(losses))


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises CannotListen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small packets at once on sockets only that say that they are TCP's
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)
    except (OSError, OverflowError) as error:
        made.close()
        raise CannotListen(f"cannot listen on {host}:{port}: {error}") from None
    return made


@contextlib.contextmanager
def hangup(action: Callable[[], None]) -> Iterator[None]:
    """``action`` on SIGHUP, where there is such a signal."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, lambda *_: action())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
