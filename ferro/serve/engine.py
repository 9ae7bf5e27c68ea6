"""The engine: the one thread that uses the device.

Its lanes have the work: streams of a language model, packed passes of encoders. Between two turns
it drops jobs that were given up, and gives the next turn to what has had least of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferro.runtime.errors import DeviceLost
from ferro.serve.lanes import BROKEN, CLOSED, Gate, Lane
from ferro.serve.shares import Shares

log = logging.getLogger("ferro.serve")

Models = Mapping[str, Any]  # by kind
Reopen = Callable[[int], Models]
OPENINGS = 2  # of a lost device: what does not open counts as lost once more


class Engine:
    """Takes turns among ``lanes``. ``start`` it, submit jobs to the lanes, ``close`` it."""

    def __init__(
        self, gate: Gate, lanes: Sequence[Lane], warm: bool = False, reopen: Reopen | None = None
    ) -> None:
        """With ``warm`` the thread runs passes of all shapes that it will need: those of lanes that
        keep something before the first request, those of others while no request waits. ``reopen``
        gives the lanes' models anew after their device was lost for the nth time."""
        self.lanes = tuple(lanes)
        self._gate, self._reopen = gate, reopen
        first = sorted(self.lanes, key=lambda lane: not lane.keeps)
        self._cold = [(lane, lane.warm_up()) for lane in first if warm]
        self._started = time.perf_counter()
        self._shares = Shares()
        self._stopped = False
        self.losses = 0
        self._thread = threading.Thread(target=self._run, name="ferro-engine", daemon=True)

    # ------------------------------------------------------------------- from other threads

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """Take no more jobs; those that were taken go on."""
        with self._gate.changed:
            self._gate.closing = True

    def close(self, timeout: float = 30.0) -> None:
        """Let every job fail and end the thread."""
        with self._gate.changed:
            self._gate.closing = self._stopped = True
            self._gate.changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def closing(self) -> bool:
        return self._gate.closing

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def warming(self) -> bool:
        """Whether requests wait until it has prepared what passes need."""
        return any(lane.keeps for lane, _ in self._cold)

    # --------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._stopped:
            ready = any(lane.ready for lane in self.lanes)
            if self._cold and (self.warming or not ready):
                self._warm_up()
                continue
            with self._gate.changed:
                while not (self._stopped or any(lane.ready for lane in self.lanes)):
                    self._gate.changed.wait()
            if not self._stopped:
                self._turn()
        for lane in self.lanes:
            lane.fail_all(CLOSED, "the server is shutting down")
            lane.forget()

    def _warm_up(self) -> None:
        """One pass of the first lane that is cold."""
        lane, passes = self._cold[0]
        try:
            next(passes)
            return
        except StopIteration:
            log.info("%s: warm after %.1f s", lane.kind, time.perf_counter() - self._started)
        except Exception:
            log.exception("a pass of warming up failed")
        self._cold.pop(0)

    def _turn(self) -> None:
        """One turn of what has had least of the time."""
        for lane in self.lanes:
            lane.sweep()
        ready = [(lane, work) for lane in self.lanes for work in lane.ready]
        if not ready:
            self._shares = Shares()
            return
        lane, work = self._shares.next(ready)
        started = time.perf_counter()
        try:
            lane.step(work)
        except Exception as error:
            log.exception("a pass failed")
            lost = isinstance(error, DeviceLost)
            for each in self.lanes if lost else (lane,):
                each.fail_all(BROKEN, f"the model could not go on: {error}")
            if lost:
                self._shares = Shares()
                self._recover()
            return
        self._shares.took((lane, work), time.perf_counter() - started)

    def _recover(self) -> None:
        """Go on with the models on a device that was opened anew; end where that cannot be."""
        for lane in self.lanes:
            lane.forget()
        for _ in range(OPENINGS):
            self.losses += 1
            if self._reopen is None:
                return
            log.error("the device was lost (%d): opening it again", self.losses)
            try:
                models = self._reopen(self.losses)
            except Exception:
                log.exception("the models cannot be opened again")
                continue
            for lane in self.lanes:
                lane.reopened(models[lane.kind])
            return
        with self._gate.changed:
            self._gate.closing = self._stopped = True
