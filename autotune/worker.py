"""The child process of the tuner: opens the device, then answers one request after the other.

It may die or hang in any of them; the parent (``autotune.child``) is prepared for both.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from autotune.bench import Bench
from autotune.messages import Check, Checked, Job, Time
from ferro.runtime.devices import open_info
from ferro.runtime.errors import DeviceLost, NoSuchDevice
from ferro.runtime.listing import devices


def bench(job: Job) -> Bench:
    """Open the job's device. Raises NoSuchDevice if it is gone."""
    for info in devices():
        if info.identity == job.device:
            device = open_info(info, job.timeout)
            return Bench(device, job.target, job.arguments, job.expected)
    raise NoSuchDevice(f"there is no device {job.device}")


def answer(opened: Bench, request: Check | Time) -> Checked | list[float]:
    if isinstance(request, Time):
        return opened.time(request.config, request.seconds)
    try:
        return Checked(opened.check(request.kernel, request.config))
    except DeviceLost:
        raise
    except Exception as error:  # whatever it is, it ends this trial and not the others
        return Checked({}, in_a_line(error))


def in_a_line(error: Exception) -> str:
    """The beginning of an error's text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}"


def serve(channel: Connection) -> None:
    """Until the parent closes the channel. A lost device ends the process with its message."""
    opened = bench(channel.recv())
    channel.send("ready")
    while True:
        try:
            request = channel.recv()
        except EOFError:
            return
        channel.send(answer(opened, request))


if __name__ == "__main__":
    # Ctrl-C goes to the parent too, which ends this process when it has kept what it knows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
