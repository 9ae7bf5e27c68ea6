"""The fuzzer's targets without the fuzzer: seeds, a few changes of them, and what it once found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import chat_templates
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
FINDS = sorted((ROOT / "tests" / "data" / "finds").glob("*/*"))
CHANGED = {"gguf": 8, "kernel": 60, "template": 60, "tokenizer": 40}


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_changes_of_them(name: str) -> None:
    target, random = TARGETS[name], Random(0)
    seeds = target.seeds()
    for data in seeds:
        target.run(data)
    for _ in range(CHANGED[name]):
        data = random.choice(seeds)
        for _ in range(3):
            data = target.mutate(data, random)
        target.run(data)


@pytest.mark.parametrize("find", FINDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_once(find: Path) -> None:
    TARGETS[find.parent.name].run(find.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_changes_differ_and_most_stay_of_their_kind(name: str) -> None:
    """A model file is still recognised by its magic number, a vocabulary read to its text."""
    target, random = TARGETS[name], Random(1)
    seed = target.seeds()[0]
    made = {target.mutate(seed, random) for _ in range(20)}
    assert len(made) > 10
    if name == "gguf":
        assert sum(data.startswith(b"GGUF") for data in made) > 10


@pytest.mark.parametrize("source", ["open('/etc/passwd')", "import this", "os.system('true')"])
def test_a_template_that_reaches_the_system_is_noticed(source: str) -> None:
    """In a process of its own: what listens to Python can never be taken away."""
    program = (
        "import os\n"
        "from tests.fuzz import chat_templates\n"
        "chat_templates.watch()\n"
        f"with chat_templates.watched(): {source}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "a template reached" in done.stderr


def test_a_template_without_end_is_left() -> None:
    chat_templates.run(
        b"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
