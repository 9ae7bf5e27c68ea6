"""Stands in for ``autotune.worker``: what a config does depends on its BLOCK and on a file.

The file named by FAKE_WORKER holds JSON: {"16": "die" | "hang" | "wrong" | "fail" | seconds}. Times
alternate around the given seconds. Each check is written to the file's neighbour, "log".
"""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from autotune.messages import Check, Checked, Time


def main(channel: Connection) -> None:
    path = Path(os.environ["FAKE_WORKER"])
    channel.recv()
    channel.send("ready")
    turn = 0
    while True:
        try:
            request = channel.recv()
        except EOFError:
            return
        block = request.config.constants["BLOCK"]
        does = json.loads(path.read_text()).get(str(block), 1.0)
        if isinstance(request, Check):
            with path.with_name("log").open("a") as log:
                log.write(f"{block}\n")
            channel.send(check(does))
        elif isinstance(request, Time):
            if does == "die late":
                sys.exit("out of luck")
            turn += 1
            channel.send([float(does) * (1 + 0.01 * (turn % 2))] * 4)


def check(does: object) -> Checked:
    if does == "die":
        sys.exit("something broke")
    if does == "hang":
        time.sleep(60)
    if does == "wrong":
        return Checked({"y": 3})
    if does == "fail":
        return Checked({}, "BuildError: it was refused")
    return Checked({"y": 0})


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
