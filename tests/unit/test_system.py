"""What differs between systems: without the modules of POSIX everything still loads and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferro import system
from tests.models import tiny

ROOT = Path(__file__).parents[2]

# A Python as on Windows: modules and functions of POSIX are missing.
ELSEWHERE = """
import mmap, sys, os, signal
import gguf, jinja2, lark, numpy, starlette, uvicorn, multiprocessing.connection, pyopencl
for name in ("fcntl", "resource", "termios", "tty", "pwd", "grp", "pty", "readline", "syslog"):
    sys.modules[name] = None
for name in ("sysconf", "uname", "sched_getaffinity", "fork", "getuid", "geteuid", "getgroups"):
    if hasattr(os, name):
        delattr(os, name)
for module, names in (
    (signal, "SIGHUP SIGUSR1 SIGUSR2 SIGQUIT SIGKILL SIGSTOP SIGCHLD SIGPIPE SIGALRM"),
    (os, "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK"),
    (mmap, "MADV_DONTNEED MADV_HUGEPAGE MAP_PRIVATE PROT_READ"),
):
    for name in names.split():
        delattr(module, name)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ELSEWHERE + script, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_every_module_loads_without_posix() -> None:
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for folder in ("ferro", "kernels_src", "autotune")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__main__.py"
    )
    script = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)"
    done = run(script)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("devices", "--device", "interpreter"),
        ("doctor",),
        ("kernels", "run", "softmax", "--device", "interpreter"),
        ("inspect", "gemma-embedding2-tiny"),
        ("tokenize", "llama-tiny", "--text", "a"),
        ("bench", "gemma-embedding2-tiny", "--sequences", "1", "-p", "2", "-r", "1"),
        ("logits", "llama-tiny", "--ids", "1,2", "--out", "OUT"),
        ("embed", "gemma-embedding2-tiny", "--text", "a", "--out", "OUT"),
        ("generate", "llama-tiny", "--prompt", "a", "--raw", "-n", "2"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_run_without_posix(arguments: tuple[str, ...], tmp_path: Path) -> None:
    script = "import sys; from ferro.cli import main; sys.exit(main(sys.argv[1:]))"
    places = {"OUT": tmp_path / "out.npy"}
    places.update((a, tiny.path(a, "q8_0")) for a in arguments if a.endswith("-tiny"))
    given = [str(places.get(a, a)) for a in arguments]
    done = run(f'os.environ["FERRO_DEVICE"] = "interpreter"; {script}', *given)
    assert done.returncode == 0, done.stderr


def test_memory_that_is_not_known_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 28 < system.total_memory() < 1 << 50
    monkeypatch.delattr(os, "sysconf")
    assert system.total_memory() == system.UNKNOWN


def test_a_lock_is_shared_or_held_alone(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert system.lock(first, shared=True) and system.lock(second, shared=True)
    assert not system.lock(second)
    os.close(first)
    assert system.lock(second)
    os.close(second)
