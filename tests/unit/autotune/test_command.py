"""`ferro autotune`: what it takes, what it prints, which code it ends with."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferro import measure
from ferro.cli import main
from ferro.commands import options
from ferro.runtime import configs
from tests.unit.autotune.support import device

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def fake_device(behave: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(options, "open_device", lambda args: device())
    monkeypatch.setattr("autotune.space.lanes", lambda kernel, target: (None,))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from ferro.dsl import kernel, tl\n"
        "@kernel\n"
        "def double(x: tl.ptr[tl.f32, N], y: tl.out[tl.f32, N],\n"
        "           ACT: tl.const['a', 'b'] = 'a', BLOCK: tl.schedule[16, 64] = 64):\n"
        "    n = tl.block(0, N, BLOCK)\n"
        "    tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)\n"
    )
    return f"{path}:double"


SIZE = ["--dim", "N=5000", "--budget-s", "600"]


def test_winner_and_gain_in_a_table(behave: Any, file: str, capsys: Capture) -> None:
    behave({16: 0.5})
    assert main(["autotune", file, *SIZE]) == 0
    heading, row, gained = capsys.readouterr().out.splitlines()
    assert "1 launches, 1 of them faster" in gained and "together 0.50 of" in gained
    assert heading.split() == "kernel sizes winner ms of default tried known left".split()
    assert row.split() == ["double", "N=5000", "BLOCK=16", "500", "0.50", "2", "0", "0"]
    assert main(["autotune", file, *SIZE]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-3:] == ["0", "2", "0"]


def test_json_has_every_trial(behave: Any, file: str, capsys: Capture) -> None:
    behave({16: "die"})
    assert main(["autotune", file, *SIZE, "--json"]) == 0
    printed = capsys.readouterr()
    (found,) = json.loads(printed.out)
    assert found["winner"]["config"]["constants"] == {"BLOCK": 64}
    assert {t["outcome"] for t in found["tried"]} == {"timed", "lost"}
    assert "1 lost: the process ended with status 1: something broke (BLOCK=16)" in printed.err


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ({16: "wrong"}, 1),
        ({16: "fail", 64: "die"}, 1),
        ({16: "fail"}, 0),
        ({}, 0),
    ],
)
def test_code_tells_wrong_bits_and_kernels_that_do_not_work(
    behave: Any, file: str, does: dict[int, str], code: int, capsys: Capture
) -> None:
    behave(does)
    assert main(["autotune", file, *SIZE]) == code
    if len(does) == 2:
        assert "none works" in capsys.readouterr().out


def test_list_shows_own_and_shipped_winners(
    behave: Any, file: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "shipped", lambda: ())
    assert main(["autotune", "--list"]) == 0
    assert "nothing is known" in capsys.readouterr().out
    main(["autotune", file, *SIZE])
    entry = {"kernel": "norms.rmsnorm", "sizes": {"M": 3}, "config": {"constants": {"BLOCK": 64}}}
    table = {"devices": ["fake"], "targets": ["simd"], "winners": [entry]}
    monkeypatch.setattr(configs, "shipped", lambda: tuple(configs.read_table(table)))
    capsys.readouterr()
    assert main(["autotune", "--list", "--json"]) == 0
    own, given = json.loads(capsys.readouterr().out)
    assert own["winner"] == "BLOCK=64" and own["from"] == "2 trials here"
    assert given == {
        "kernel": "norms.rmsnorm",
        "target": "simd-16-emulated",
        "sizes": "M<=4",
        "winner": "BLOCK=64",
        "of default": None,
        "uncertain": None,
        "from": "shipped",
    }


def test_report_is_written(behave: Any, file: str, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "report.html"
    assert main(["autotune", file, *SIZE, "--report", str(report)]) == 0
    assert "<svg" in report.read_text()
    assert f"wrote {report}" in capsys.readouterr().err


def test_configs_that_the_budget_left_are_named(behave: Any, file: str, capsys: Capture) -> None:
    behave({})
    words = ["autotune", file, "--dim", "N=5000", "--budget-s", "0"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "double N=5000: 1 left by the budget (BLOCK=16)" in printed.err
    assert printed.out.splitlines()[1].split()[-1] == "1"


def test_left_configs_are_json(behave: Any, file: str, capsys: Capture) -> None:
    behave({})
    assert main(["autotune", file, "--dim", "N=5000", "--budget-s", "0", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["left"] == ["BLOCK=16"]


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C counts, also in a process that a shell started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_termination_keep_what_was_timed(
    number: signal.Signals,
    behave: Any,
    file: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from autotune import tuner

    behave({16: 0.5})
    taken = tuner._Run.give_up

    def stop(run: Any, round_number: int) -> None:
        taken(run, round_number)
        if round_number == 4:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(tuner._Run, "give_up", stop)
    assert main(["autotune", file, *SIZE]) == 130
    assert "interrupted: what was timed is kept" in capsys.readouterr().err
    monkeypatch.setattr(tuner._Run, "give_up", taken)
    log = behave({})
    assert main(["autotune", file, *SIZE]) == 0
    assert log.read_text() == ""
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "BLOCK=16"


def test_budget_is_shared_and_what_is_left_is_told(
    behave: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave({})
    monkeypatch.setattr("autotune.problem.interpret", lambda *args: None)
    assert main(["autotune", "norms.rmsnorm", "--budget-s", "0"]) == 0
    printed = capsys.readouterr()
    assert "left by the budget: 1 launches (rmsnorm K=1024 M=192)" in printed.err
    assert len(printed.out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dim", "M=1"], "go with the name of a kernel"),
        (["rmsnorm", "--dim", "Q=1"], "no dimension `Q`"),
        (["rmsnorm", "--set", "BLOCK=64"], "those of schedule are tuned"),
        (["rmsnrm"], "did you mean `rmsnorm`?"),
        (["rmsnorm", "--dim", "M=0"], "nothing to run"),
    ],
)
def test_bad_input_ends_with_2(words: list[str], message: str, capsys: Capture) -> None:
    assert main(["autotune", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_interpreter_has_nothing_to_tune(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert main(["autotune", "--device", "interpreter"]) == 2
    assert "no schedules to tune" in capsys.readouterr().err


def test_typical_sizes_make_launches_of_every_shipped_kernel() -> None:
    from autotune import shapes
    from ferro.catalogue import shipped

    named = {f"{entry.module}.{entry.name}" for entry in shipped()}
    assert set(shapes.TYPICAL) <= named
    for request in shapes.requests():
        assert isinstance(request, measure.Request)
        small = {name: min(size, 64) for name, size in request.sizes.items()}
        assert set(small) == {s.name for s in request.kernel().scalars if s.implicit}
