"""Waits that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ferro.runtime.errors import DeviceLost
from ferro.runtime.watchdog import Watchdog


class Event:
    def __init__(self, ready: threading.Event, error: Exception | None = None) -> None:
        self.ready, self.error = ready, error

    def wait(self) -> None:
        self.ready.wait()
        if self.error:
            raise self.error


def done() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_a_wait_ends_with_its_event() -> None:
    dog = Watchdog("pocl", 5)
    ready = threading.Event()
    threading.Timer(0.02, ready.set).start()
    dog.wait(Event(ready))
    dog.wait(Event(done()))
    dog.check()
    dog.close()


def test_a_timeout_loses_the_device_for_good() -> None:
    dog = Watchdog("pocl", 5)
    stuck = threading.Event()
    began = time.perf_counter()
    with pytest.raises(DeviceLost, match="no answer within 0.05 s"):
        dog.wait(Event(stuck), timeout=0.05)
    assert time.perf_counter() - began < 2
    with pytest.raises(DeviceLost, match="no answer"):
        dog.check()
    with pytest.raises(DeviceLost):
        dog.wait(Event(done()))
    stuck.set()


def test_a_failed_event_loses_the_device() -> None:
    dog = Watchdog("pocl", 5)
    with pytest.raises(DeviceLost, match="engine reset"):
        dog.wait(Event(done(), RuntimeError("engine reset")))
    assert "engine reset" in dog.lost


def test_several_threads_wait_at_once() -> None:
    dog = Watchdog("pocl", 5)
    count = []

    def work() -> None:
        for _ in range(20):
            dog.wait(Event(done()))
        count.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(count) == 4


STOPPED = """
import time
from ferro.runtime import watchdog
class Event:
    def wait(self):
        print("waiting", flush=True)
        for _ in range(10):
            time.sleep(0.05)
watchdog.STEP = 0.1
watchdog.Watchdog("pocl", 1.5).wait(Event())
print("done", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP")
def test_time_for_which_the_process_was_stopped_does_not_count() -> None:
    command = [sys.executable, "-c", STOPPED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.read() == "done\n"
