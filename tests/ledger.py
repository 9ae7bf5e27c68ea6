"""The ledger of the full matrix: `pytest -p tests.ledger --ledger FILE [--part 3/8]`.

Every result is written as it comes, one line of JSON a test. A test that passed is left out of
later runs as long as nothing changed that it depends on: the compiler, the runtime, the kernels,
its own file with the modules of tests/ named there, and the driver of its stack. So a run that
was ended goes on where it was. A part is a share of the test classes; together they are all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from ferro.runtime import DeviceError
from tests.stacks import STACKS, open_stack

ROOT = Path(__file__).parents[1]
PRODUCT = ("ferro/*.py", *(f"{at}/**/*" for at in "ferro/dsl ferro/codegen ferro/runtime".split()))
KERNELS = ("kernels_src/**/*", "autotune/**/*")
MODULE = re.compile(r"\btests(?:\.\w+)+")
SETTINGS = ("FERRO_CONFORMANCE", "HYPOTHESIS_PROFILE")
BEGAN = "FERRO_LEDGER_BEGAN"  # set for the workers, which must all leave out the same tests


def stack_of(test: str) -> str:
    """The stack that a test runs on: "oclgrind", or "host" if it is none of the fixtures'."""
    if "/test_oclgrind.py" in test:
        return "oclgrind"
    parameters = test.partition("[")[2]
    return next((name for name in STACKS if name in parameters), "host")


def unit_of(test: str) -> str:
    """What is never cut by parts: a test class, or a function with all its parameters."""
    function = test.partition("[")[0]
    path, *names = function.split("::")
    return "::".join([path, names[0]])


def share(tests: Iterable[str], part: str) -> set[str]:
    """The units of part "3/8": every eighth one, from the third on."""
    number, count = map(int, part.split("/"))
    units = list(dict.fromkeys(map(unit_of, tests)))
    return set(units[number - 1 :: count])


def _files(patterns: Iterable[str]) -> list[Path]:
    found = (path for pattern in patterns for path in ROOT.glob(pattern))
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=None)
def _product() -> str:
    return _digest(_files((*PRODUCT, *KERNELS)))


def reached(path: Path) -> list[Path]:
    """A test file and the modules of tests/ that are named in it or in one of those."""
    found, waiting = set(), [path]
    while waiting:
        at = waiting.pop()
        if at in found or not at.is_file():
            continue
        found.add(at)
        names = MODULE.findall(at.read_text())
        waiting += [ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names]
        waiting.append(at.with_name("conftest.py"))
    return sorted(found)


@lru_cache(maxsize=None)
def _driver(stack: str) -> str:
    if stack not in STACKS:
        return stack
    try:
        return open_stack(stack).device.info.identity
    except DeviceError:
        return "missing"


@lru_cache(maxsize=None)
def key(file: str, stack: str) -> str:
    """Changes with whatever may change the result of a test of this file on this stack."""
    settings = [os.environ.get(name, "") for name in SETTINGS]
    parts = [_product(), _digest(reached(ROOT / file)), _driver(stack), *settings]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def key_of(test: str) -> str:
    return key(test.partition("::")[0], stack_of(test))


class Ledger:
    """The file with its results; of each test the last one that still holds."""

    def __init__(self, path: Path, before: float) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # cut off by whatever ended that run
            if record["at"] < before and record["key"] == key_of(record["test"]):
                self.known[record["test"]] = record

    def passed(self, test: str) -> bool:
        return self.known.get(test, {}).get("outcome") == "passed"

    def add(self, test: str, outcome: str, seconds: float, why: str) -> None:
        record = {"test": test, "outcome": outcome, "seconds": round(seconds, 2), "why": why}
        record |= {"key": key_of(test), "at": time.time()}
        self.known[test] = record
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


class Plugin:
    """Leaves out what passed, writes down what is run, and closes with a table of both."""

    def __init__(self, ledger: Ledger, part: str, writes: bool) -> None:
        self.ledger = ledger
        self.part = part
        self.writes = writes  # false in the workers of a run, whose reports come back to it
        self.waiting: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        units = share((item.nodeid for item in items), self.part)
        kept, out = [], []
        for item in items:
            wanted = unit_of(item.nodeid) in units and not self.ledger.passed(item.nodeid)
            (kept if wanted else out).append(item)
        config.hook.pytest_deselected(items=out)
        items[:] = kept
        self.waiting = {item.nodeid for item in kept}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self.waiting |= set(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.writes and (report.when == "call" or report.outcome != "passed"):
            self.waiting.discard(report.nodeid)
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.ledger.add(report.nodeid, report.outcome, report.duration, str(why or "")[-2000:])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("the full matrix so far")
        for line in summary(self.ledger.known.values()):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"left of part {self.part}: {len(self.waiting)} tests")


def summary(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What passed, failed and was skipped on each stack, how long it took, and why."""
    counts: Counter[tuple[str, str]] = Counter()
    seconds: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    failed = []
    for record in records:
        stack, outcome = stack_of(record["test"]), record["outcome"]
        counts[stack, outcome] += 1
        seconds[stack] += record["seconds"]
        if outcome == "skipped":
            reasons[stack, record["why"].removeprefix("Skipped: ")] += 1
        if outcome == "failed":
            failed.append(record["test"])
    outcomes = ("passed", "failed", "skipped")
    yield f"{'stack':14}" + "".join(f"{name:>9}" for name in (*outcomes, "minutes"))
    for stack in seconds:
        row = "".join(f"{counts[stack, outcome]:9}" for outcome in outcomes)
        yield f"{stack:14}{row}{seconds[stack] / 60:9.1f}"
    for (stack, why), count in sorted(reasons.items()):
        yield f"skipped {count} of {stack}: {why}"
    yield from (f"failed {test}" for test in failed)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ledger")
    group.addoption("--ledger", type=Path, help="where results are kept, one line a test")
    group.addoption("--part", default="1/1", help="run one share of the test classes: 3/8")


def pytest_configure(config: pytest.Config) -> None:
    path, part = config.getoption("--ledger"), config.getoption("--part")
    if path is None:
        return
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"--part {part}: expected a number and a count, such as 3/8")
    path.parent.mkdir(parents=True, exist_ok=True)
    began = float(os.environ.setdefault(BEGAN, str(time.time())))
    plugin = Plugin(Ledger(path, began), part, writes=not hasattr(config, "workerinput"))
    config.pluginmanager.register(plugin, "results")
