"""The command line: what it accepts, what it says when used wrongly, which code it ends with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ferro import __version__
from ferro.cli import exit_code, main
from ferro.commands import COMMANDS, UsageError
from ferro.commands.kernels import unspecified
from ferro.dsl.kernel import KernelDefinition
from ferro.runtime.cache import ProgramCache
from ferro.runtime.errors import DeviceUnusable, NoSuchDevice, OutOfMemory
from ferro.runtime.listing import DeviceInfo
from kernels_src.matmul import matmul_q8

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


ENDING = """
import atexit, os
from ferro import cli
from ferro.runtime.watchdog import Watchdog

def run(words):
    print("result")
    {event}

cli.run = run
atexit.register(os._exit, 99)  # an end that the driver spoils
cli.console()
"""


@pytest.mark.parametrize(
    ("event", "code"),
    [('raise Watchdog("cpu", 1).lose("no answer")', 1), ("return 0", 99)],
    ids=["lost", "well"],
)
def test_only_a_lost_device_ends_the_process_past_the_drivers_end(event: str, code: int) -> None:
    words = [sys.executable, "-c", ENDING.format(event=event)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (code, "result\n")
    assert ("cpu was lost: no answer" in done.stderr) == (code == 1)


def wrong_use(arguments: list[str], capsys: Capture) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom ferro.cli import build_parser\nbuild_parser().format_help()\n"
        "heavy = {'numpy', 'pyopencl', 'lark', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_help_lists_every_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert "exit codes" in text


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"ferro {__version__}\n"


def test_no_command_shows_help(capsys: Capture) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().out


def test_unknown_command_suggests_one(capsys: Capture) -> None:
    text = wrong_use(["doctr"], capsys)
    assert "'doctr'" in text and "did you mean 'doctor'?" in text


def test_unknown_flag_suggests_one(capsys: Capture) -> None:
    assert "did you mean '--json'?" in wrong_use(["cache", "ls", "--jsn"], capsys)


def test_unknown_action_suggests_one(capsys: Capture) -> None:
    assert "did you mean 'why'?" in wrong_use(["cache", "whi"], capsys)


def test_threads_must_be_positive(capsys: Capture) -> None:
    assert "'0' is no number above 0" in wrong_use(["cache", "--threads", "0"], capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_common_options(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--device", "--threads", "--json"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError(""), 2),
        (FileNotFoundError(""), 2),
        (NoSuchDevice(""), 2),
        (OutOfMemory(""), 3),
        (MemoryError(""), 3),
        (KeyError(""), None),
    ],
)
def test_errors_have_codes(error: Exception, code: int | None) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["doctr"], "CommandLineError", 2),
        (["cache", "ls", "--jsn"], "CommandLineError", 2),
        (["cache", "rm"], "UsageError", 2),
        (["kernels", "show", "rmsnrm"], "CatalogueError", 2),
        (["inspect", "nowhere/model.gguf"], None, 2),
        (["kernels", "run", "rmsnorm", "--device", "nonesuch"], "NoSuchDevice", 2),
    ],
)
def test_errors_are_json_for_who_wants_json(
    words: list[str], kind: str | None, code: int, capsys: Capture
) -> None:
    assert main([*words, "--json"]) == code
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert error["kind"] == (kind or error["kind"]) and error["code"] == code
    assert error["message"] and printed.err == ""
    assert main(words) == code
    assert error["message"].splitlines()[0] in capsys.readouterr().err


def test_diagnostics_of_a_kernel_are_json_too(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from ferro.dsl import kernel, tl\n"
        "@kernel\n"
        "def one(y: tl.out[tl.f32, N]):\n"
        "    tl.store(y[m], 1.0)\n"
    )
    assert main(["kernels", "show", f"{file}:one", "--ir", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    (found,) = error["diagnostics"]
    assert found["code"].startswith("FER")
    assert (found["span"]["line"], found["span"]["file"]) == (5, str(file))


def broken(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `ferro cache` fail in this way."""

    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("ferro.commands.cache.run", fail)


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    broken(KeyError("lost"), monkeypatch)
    assert main(["cache", "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["kind"] == "KeyError"
    assert "Traceback" in printed.err
    assert main(["cache"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    broken(KeyboardInterrupt(), monkeypatch)
    assert main(["cache", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == 130
    assert main(["cache"]) == 130
    assert capsys.readouterr().err == ""


def test_module_runs_and_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m ferro cache ls --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- cache --------------------------------------------------------------------------------------


def fill_cache() -> None:
    from ferro.codegen.program import Config, Program, Target

    cache = ProgramCache()
    program = Program("source", (), (), Target("simd", 8), Config())
    cache.store("rmsnorm", {"driver": "1", "options": ""}, program, b"binary")
    time.sleep(0.01)
    cache.store("rmsnorm", {"driver": "2", "options": ""}, program, b"binary")
    cache.store("softmax", {"driver": "2", "options": ""}, program, b"binary")


def test_cache_lists_as_json_and_as_a_table(capsys: Capture, own_cache: Path) -> None:
    fill_cache()
    assert main(["cache", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [e["kernel"] for e in listed["entries"]] == ["rmsnorm", "rmsnorm", "softmax"]
    assert listed["folder"].startswith(str(own_cache))
    assert main(["cache", "ls", "softmax"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["kernel", "key", "bytes", "built", "used"]
    assert lines[1].startswith("softmax")
    assert len(lines) == 3


def test_cache_why_says_what_changed(capsys: Capture) -> None:
    fill_cache()
    assert main(["cache", "why", "rmsnorm"]) == 0
    newest, oldest = capsys.readouterr().out.splitlines()
    assert newest.endswith("driver's version: 1 -> 2")
    assert oldest.endswith("never built before")
    assert main(["cache", "why", "rmsnorm", "--json"]) == 0
    newest, oldest = json.loads(capsys.readouterr().out)
    assert newest["changes"] == [{"part": "driver", "old": "1", "new": "2"}]
    assert oldest["changes"] == []
    assert main(["cache", "why", "unheard"]) == 1


def test_cache_why_tells_an_entry_that_was_damaged(capsys: Capture) -> None:
    fill_cache()
    cache = ProgramCache()
    (entry,) = cache.entries("softmax")
    program, binary = cache.load("softmax", entry.parts) or pytest.fail("nothing is kept")
    cache.store("softmax", entry.parts, program, binary)
    assert main(["cache", "why", "softmax"]) == 0
    assert capsys.readouterr().out.endswith("the entry was damaged or refused by the driver\n")


def test_cache_rm(capsys: Capture) -> None:
    fill_cache()
    assert main(["cache", "rm"]) == 2
    assert "--all" in capsys.readouterr().err
    assert main(["cache", "rm", "rmsnorm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 2}
    assert main(["cache", "rm", "--all"]) == 0
    assert list(ProgramCache().entries()) == []


# --- doctor -------------------------------------------------------------------------------------


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    from ferro.runtime import doctor

    found = [
        doctor.Finding(doctor.OK, "device", "a cpu"),
        doctor.Finding(doctor.NOTE, "rusticl", "is off", "export RUSTICL_ENABLE=iris"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)


@pytest.mark.usefixtures("healthy")
def test_doctor_prints_findings_with_their_fix(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       device: a cpu",
        "note     rusticl: is off",
        "         fix: export RUSTICL_ENABLE=iris",
    ]


@pytest.mark.usefixtures("healthy")
def test_doctor_json(capsys: Capture) -> None:
    assert main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["works"] is True
    assert printed["findings"][1]["fix"] == "export RUSTICL_ENABLE=iris"


def test_doctor_without_a_device_fails(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from ferro.runtime import doctor

    monkeypatch.setattr(doctor, "examine", list)
    assert main(["doctor"]) == 1


# --- kernels ------------------------------------------------------------------------------------

INTERPRETER = ["--device", "interpreter"]


def test_kernels_lists_constexprs(capsys: Capture) -> None:
    assert main(["kernels", "--json"]) == 0
    listed = {kernel["name"]: kernel for kernel in json.loads(capsys.readouterr().out)}
    product = listed["matmul_q8"]
    assert product["meaning"]["ACT"]["default"] == "none"
    choices = matmul_q8.schedule["BN"].choices
    assert product["schedule"]["BN"]["choices"] == list(choices)
    assert product["parameters"]["w"] == "q8"
    assert main(["kernels"]) == 0
    assert "BM=4 BN=64" in capsys.readouterr().out


def test_kernels_of_a_file(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from ferro.dsl import KernelDefinition\n"
        "text = 'def one(y: tl.out[tl.f32, N]):\\n    pass\\n'\n"
        "one = KernelDefinition.from_source(text, __file__)\n"
    )
    assert main(["kernels", "list", str(file), "--json"]) == 0
    assert [kernel["name"] for kernel in json.loads(capsys.readouterr().out)] == ["one"]


def test_show_prints_text_or_ir(capsys: Capture) -> None:
    assert main(["kernels", "show", "rmsnorm"]) == 0
    assert capsys.readouterr().out.startswith("@kernel\ndef rmsnorm(")
    assert main(["kernels", "show", "rmsnorm", "--ir", "--set", "BLOCK=64"]) == 0
    assert "schedule BLOCK = 64" in capsys.readouterr().out


def test_show_source_for_a_named_target(capsys: Capture) -> None:
    target = ["--target", "simt-16-dp4a"]
    assert main(["kernels", "show", "rmsnorm", "--source", "--json", *target]) == 0
    text = json.loads(capsys.readouterr().out)["source"]
    assert "void rmsnorm(" in text and "#line" in text


def test_interpreter_has_no_source(capsys: Capture) -> None:
    assert main(["kernels", "show", "rmsnorm", "--source", *INTERPRETER]) == 2
    assert "--target simt-16-dp4a" in capsys.readouterr().err


def test_run_compares_bits(capsys: Capture) -> None:
    sizes = ["--dim", "M=2,K=33", "--arg", "eps=1e-5", "--seed", "3"]
    assert main(["kernels", "run", "rmsnorm", *sizes, *INTERPRETER]) == 0
    assert "y: equal in every bit" in capsys.readouterr().out


def test_bench_prints_rates_and_limits(capsys: Capture) -> None:
    launch = ["--dim", "M=1,N=64,K=64", "--seconds", "0.01", "--footprint", "4"]
    assert main(["kernels", "bench", "matmul_q8", *launch, *INTERPRETER, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["rates"]["read"] > 0 and printed["limits"]["read"] > 0
    assert printed["int8_operations"] == 2 * 64 * 64


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "rmsnrm"], "did you mean `rmsnorm`?"),
        (["run", "rmsnorm", "--dim", "Q=1"], "no dimension `Q`"),
        (["run", "rmsnorm", "--set", "BLOCK=63"], "BLOCK"),
        (["run", "attention"], "constexpr `D` has no value"),
        (["run", "rmsnorm", "--device", "nonesuch"], "there is no device `nonesuch`"),
    ],
)
def test_bad_input_ends_with_2(words: list[str], message: str, capsys: Capture) -> None:
    device = [] if "--device" in words else INTERPRETER
    assert main(["kernels", *words, *device]) == 2
    assert message in capsys.readouterr().err


def test_demo_in_the_interpreter(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from ferro.commands import demo

    monkeypatch.setattr(demo, "LAUNCHES", (("rmsnorm", {"M": 1, "K": 32}, {}),))
    assert main(["demo", *INTERPRETER]) == 0
    text = capsys.readouterr().out
    assert "rmsnorm" in text and "every bit equals the interpreter's" in text


# --- devices ------------------------------------------------------------------------------------


def test_devices_always_has_the_interpreter(capsys: Capture) -> None:
    assert main(["devices", "--json", *INTERPRETER]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["alias"], device["exact"]) == ("interpreter", "yes")
    assert main(["devices", "--no-probe"]) == 0
    assert "interpreter" in capsys.readouterr().out.splitlines()[-1]


def test_a_device_whose_probes_do_not_start_is_listed_as_not_probed(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = DeviceInfo(0, "pocl", "cpu", "Portable Computing Language", "3.0", "3.0", "cpu")

    def findings(info: DeviceInfo) -> None:
        raise DeviceUnusable("pocl: the probes did not start (ImportError)")

    monkeypatch.setattr(sys.modules["ferro.runtime.devices"], "devices", lambda: [cpu])
    monkeypatch.setattr("ferro.runtime.probes.findings", findings)
    assert main(["devices"]) == 1
    printed = capsys.readouterr()
    assert "not probed" in printed.out and "ImportError" in printed.err
    assert main(["devices", "--json"]) == 1
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert "did not start" in device["failure"] and "dots" not in device


def test_devices_tells_its_progress_to_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["devices", "--json", *INTERPRETER]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["devices", "--json", *INTERPRETER]) == 0
    printed = capsys.readouterr()
    assert "probing interpreter" in printed.err
    assert json.loads(printed.out)["devices"]


def test_bits_that_differ_are_traced_to_lanes_that_hold_anything() -> None:
    text = (
        "def f(x: tl.ptr[f32, N], y: tl.out[f32, N]):\n"
        "    n = tl.arange(0, 32)\n"
        "    a = tl.load(x[n], mask=n < N)\n"
        "    b = tl.load(x[n], mask=n < N, other=0.0)\n"
        "    tl.store(y[n], a + b, mask=n < N)\n"
    )
    (sentence,) = unspecified(KernelDefinition.from_source(text, "mine.py").specialise())
    assert sentence.startswith("mine.py:3: lanes that the mask switches off hold anything")


@pytest.mark.parametrize("option", ["--split=2", "--lanes=3"])
def test_an_impossible_config_is_wrong_use(option: str, capsys: Capture) -> None:
    assert main(["kernels", "show", "add", "--source", "--target", "simd-16", option]) == 2
    assert capsys.readouterr().err.startswith(f"ferro kernels: {option[2:]}")


@pytest.mark.parametrize(
    "words", ["kernels", "kernels --json", "--help", "nonsense --json", "cache"]
)
@pytest.mark.parametrize(
    ("where", "reason"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")]
)
def test_results_that_cannot_be_written_are_one_line(words: str, where: str, reason: str) -> None:
    command = f"{sys.executable} -m ferro.cli {words} {where} </dev/null"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.fullmatch(rf"ferro\b.*: cannot write standard output: {reason}\n", done.stderr)


def test_closed_input_and_notes_do_not_matter() -> None:
    command = f"{sys.executable} -m ferro.cli kernels <&- 2>&-"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, timeout=120)
    assert done.returncode == 0 and b"rmsnorm" in done.stdout
