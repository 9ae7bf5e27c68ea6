"""`ferro bench --profile` on tiny models: what is launched, how long it takes, how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ferro import profiling
from ferro.cli import main
from ferro.commands import profile_view
from ferro.models.language_model import LanguageModel
from ferro.profiling import Launch, Pass, Phase, by_launch
from ferro.runtime import DeviceError, open_device
from ferro.runtime.device import Device
from ferro.runtime.profiler import Timing
from tests.models import tiny

Capture = pytest.CaptureFixture[str]
Run = Callable[..., int]


def launch(**given: object) -> Launch:
    return Launch(**{
        "kernel": "k", "sizes": {"M": 1}, "bytes": 100, "int8_operations": 400,
        "f32_operations": 0, "commands": 1, **given,
    })  # type: ignore[arg-type]  # fmt: skip


def phase(seconds: list[list[float]], reads: list[float]) -> Phase:
    """Rounds of one pass each."""
    passes = [[Pass(taken, [(0.0, one) for one in taken], [])] for taken in seconds]
    limits = [{"read": limit} for limit in reads]
    return Phase("decode", 1, 0, [launch()] * len(seconds[0]), passes, [], limits, [])


def test_commands_of_one_launch_count_together() -> None:
    timings = [Timing(n, 0.0, s, e) for n, s, e in (("a", 0, 2), ("b", 3, 4), ("c", 6, 10))]
    found = by_launch(timings, [2, 1])
    assert found.seconds == [3, 4]
    assert found.spans == [(0, 4), (6, 10)]
    assert found.gaps == [1, 2]


def test_launches_of_one_kernel_and_sizes_are_one_row() -> None:
    found = phase([[1.0, 3.0]], [200.0])
    found.launches[1] = launch(sizes={"M": 2})
    assert [(row.count, row.seconds) for row in found.rows()] == [(1, 3.0), (1, 1.0)]
    (row,) = phase([[1.0, 3.0]], [200.0]).rows()
    assert (row.count, row.seconds) == (2, 4.0)
    assert row.rates == {"read": 200 / 4.0, "dot": 800 / 4.0}


def test_a_share_is_taken_within_a_round() -> None:
    (row,) = phase([[1.0], [10.0], [2.0]], [200.0, 20.0, 100.0]).rows()
    assert row.shares["read"] == pytest.approx(0.5)
    assert "dot" not in row.shares  # the device gave no such limit
    assert row.bound == "read"


@pytest.fixture(params=["interpreter", "intel"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    try:
        opened = open_device(request.param)
    except DeviceError as error:
        pytest.skip(str(error))
    with opened as found:
        yield found


def test_a_model_without_a_way_back_is_profiled(device: Device) -> None:
    path = tiny.path("lfm2-tiny", "q8_0")
    with LanguageModel.open(path, device, context=64) as model:
        prefill, decode = profiling.profile(model, 8, 5, rounds=2)
    assert (prefill.tokens, decode.depth) == (8, 5)
    for found in (prefill, decode):
        rows = found.rows()
        assert sum(row.count for row in rows) == len(found.launches) > 10
        assert all(row.seconds > 0 and row.launch.bytes > 0 for row in rows)
        products = [row for row in rows if row.launch.kernel == "matmul_q8"]
        assert products and all(row.launch.int8_operations for row in products)
        assert found.seconds > 0 and found.python >= 0
        assert len(found.passes) == len(found.limits) == 2
    assert len(decode.passes[0]) == len(decode.plain) // 2 == profiling.STEPS


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    path = str(tiny.path("llama-tiny", "q8_0").resolve())
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(
        ["bench", path, "--profile", "-p", "3", "-r", "1", "--device", "interpreter", *words]
    )


def test_table_trace_and_plot(run: Run, capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run("-d", "2", "--trace", "t.json", "--plot", "roof.png") == 0
    printed = capsys.readouterr().out
    assert "prefill, 3 tokens; the device gives" in printed
    assert "decode, 1 token after 2; the device gives" in printed
    assert "ms between them" in printed and "matmul_q8" in printed
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"prefill 3 after 0", "decode 1 after 2"}
    slices = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in slices)
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")


def test_json(run: Run, capsys: Capture) -> None:
    assert run("--json", "-p", "0") == 0
    printed = json.loads(capsys.readouterr().out)
    (decode,) = printed["phases"]
    assert decode["kind"] == "decode" and decode["seconds"] > 0
    assert sum(kernel["count"] for kernel in decode["kernels"]) == decode["launches"]
    assert {"kernel", "sizes", "bytes"} <= set(decode["kernels"][0]["launch"])


def test_a_plot_without_matplotlib_is_refused_at_once(
    run: Run, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("--plot", "roof.png") == 2
    assert profile_view.NO_PLOT in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plot", "roof.tiff2"], "--plot"),
        (["-d", "4090", "--ctx", "4096"], "the context holds 4096"),
        (["--trace", "nowhere/t.json", "--plot", "nowhere/x"], "--plot"),
    ],
)
def test_bad_input_ends_with_2(run: Run, words: list[str], message: str, capsys: Capture) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err


def test_trace_and_plot_go_with_profile(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    for option in ("--trace", "--plot"):
        assert main(["bench", str(tmp_path / "m.gguf"), option, "x"]) == 2
        assert f"{option} goes with --profile" in capsys.readouterr().err


def test_a_pass_without_launches_is_shown() -> None:
    found = Phase("prefill", 1, 0, [], [[Pass([], [], [])]], [], [{}], [None])
    found.plain = [profiling.Plain(1.0, 0.5)]
    assert "0 launches" in profile_view.text(found)
    assert profile_view.as_json(found)["kernels"] == []
