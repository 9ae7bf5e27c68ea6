"""`ferro pull` in a process of its own, with the real library, from a hub on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import hub_server
from tests.unit.hub_server import DATA, FILE, REPOSITORY, Hub

pytest.importorskip("huggingface_hub")
NAME = f"{REPOSITORY}/{FILE}"
WRITTEN = 10 << 20  # bytes of a piece that the library writes down at once


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server.serving() as made:
        yield made


class Puller:
    """Runs the command; ``file`` is where the model is to appear."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.file = folder / "models" / FILE
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("HF_")},
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(folder / "hf"),
            "FERRO_MODELS_DIR": str(folder / "models"),
            "NO_PROXY": "127.0.0.1",
        }

    def start(self, name: str = NAME, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ferro", "pull", name],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # tests may run in the background, where Ctrl-C is ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, name: str = NAME, **environment: str) -> tuple[int, str, str]:
        process = self.start(name, **environment)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


@pytest.fixture
def puller(tmp_path: Path, hub: Hub) -> Puller:
    return Puller(tmp_path, hub)


def test_a_connection_that_breaks_is_gone_on_with(hub: Hub, puller: Puller) -> None:
    hub.ends = [12 << 20]
    assert puller.run() == (0, f"{puller.file}\n", "")
    assert puller.file.read_bytes() == DATA
    assert len(hub.starts) == 2 and hub.starts[0] == 0 < hub.starts[1]


def test_a_pull_that_was_stopped_is_gone_on_with(hub: Hub, puller: Puller) -> None:
    hub.ends, hub.stalls = [22 << 20], True
    process = puller.start()
    for _ in range(600):
        if any(path.stat().st_size >= WRITTEN for path in puller.file.parent.rglob("*.part")):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert not puller.file.exists()
    hub.closing.set()
    assert puller.run()[0] == 0
    assert puller.file.read_bytes() == DATA and hub.starts[-1] >= WRITTEN


def test_another_file_than_was_stated_never_appears(hub: Hub, puller: Puller) -> None:
    hub.sent = DATA[:-1] + b"x"
    code, out, err = puller.run()
    assert (code, out) == (1, "") and "checksum differs; pull again" in err
    assert not puller.file.exists()
    hub.sent = DATA
    assert puller.run()[0] == 0 and puller.file.read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (404, "RepoNotFound", "there is no such repository or file"),
        (403, "GatedRepo", "its licence has to be accepted on the hub's page first"),
        (401, "", "set HF_TOKEN to a valid token"),
        (429, "", "try again later"),
        (403, "", "403 Forbidden"),
    ],
)
def test_what_the_hub_refuses(status: int, code: str, told: str, hub: Hub, puller: Puller) -> None:
    hub.refusal = (status, code)
    ended, out, err = puller.run()
    assert (ended, out) == (1, "") and told in err and "Traceback" not in err
    assert err.startswith(f"ferro pull: {REPOSITORY}: ") and err.count("\n") == 1
    assert not puller.file.exists()


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "the Hugging Face hub cannot be reached"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
def test_without_a_network(environment: dict[str, str], told: str, puller: Puller) -> None:
    code, out, err = puller.run(**environment)
    assert (code, out) == (1, "") and told in err and err.count("\n") == 1


def test_a_full_disk(hub: Hub, puller: Puller) -> None:
    """A bound of a file's size stands for a disk: it fails in the same place."""
    limited = (
        "import resource, sys; from ferro.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, 5 << 20));"
        f"sys.exit(main(['pull', {NAME!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited], env=puller.environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.endswith(": File too large\n")
    assert not puller.file.exists()
