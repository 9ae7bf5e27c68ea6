"""What `--dim`, `--set`, `--arg`, `--target` and their like mean."""

from __future__ import annotations

import argparse
import importlib
from types import SimpleNamespace

import pytest

from ferro.codegen.program import Config, Target
from ferro.commands import UsageError, options
from ferro.runtime import CallError


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.launch_options(parser)
    return parser.parse_args(list(words))


DEFINITION = SimpleNamespace(
    name="mine", meaning={"ACT": None, "EPS": None, "D": None}, schedule={"BLOCK": None}
)


def test_dimensions_may_share_an_option() -> None:
    args = arguments("--dim", "M=1,N=9216", "--dim", "K=1024")
    assert options.integers(args.dim, "--dim") == {"M": 1, "N": 9216, "K": 1024}


@pytest.mark.parametrize("text", ["M", "M=", "=4", "M=x", "M=1.5", "M=1,,"])
def test_bad_dimensions(text: str) -> None:
    with pytest.raises(UsageError, match="--dim takes"):
        options.integers([text], "--dim")


@pytest.mark.parametrize("option", ["--dim", "--set", "--arg"])
def test_one_name_with_two_values_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} gives `N` twice: 1 and 2"):
        options.integers(["N=1,M=3", "N=2"], option)
    assert options.integers(["N=1", "N=1"], option) == {"N": 1}


@pytest.mark.parametrize("text", ["-1", "x", "1.5", ""])
def test_bad_seeds(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(f"--seed={text}")
    assert ended.value.code == 2
    assert f"'{text}' is no whole number from 0 on" in capsys.readouterr().err
    assert arguments("--seed", "7").seed == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-1", -1), ("1e-5", 1e-5), ("True", True), ("silu", "silu"), ("'a b'", "a b")],
)
def test_literals(text: str, value: object) -> None:
    found = options.literal(text)
    assert found == value and type(found) is type(value)


def test_constexprs_are_told_apart() -> None:
    args = arguments("--set", "ACT=silu", "--set", "BLOCK=64", "--set", "D=32")
    meaning, schedule = options.constants(args, DEFINITION)  # type: ignore[arg-type]
    assert (meaning, schedule) == ({"ACT": "silu", "D": 32}, {"BLOCK": 64})


def test_a_constexpr_that_is_an_extent_may_be_given_as_a_dimension() -> None:
    args = arguments("--dim", "M=2,D=64", "--set", "ACT=silu")
    assert options.constants(args, DEFINITION) == ({"D": 64, "ACT": "silu"}, {})  # type: ignore[arg-type]
    definition = SimpleNamespace(**vars(DEFINITION), parameters={})
    found = options.problem(args, definition)  # type: ignore[arg-type]
    assert (found.sizes, found.constants) == ({"M": 2}, {"D": 64, "ACT": "silu"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BLCK=64", "`mine` has no constexpr `BLCK` \\(there are: ACT, EPS, D, BLOCK\\)"),
        ("BLOCK=wide", "`BLOCK` is an integer"),
    ],
)
def test_bad_constexprs(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options.constants(arguments("--set", text), DEFINITION)  # type: ignore[arg-type]


def test_no_option_is_no_config() -> None:
    assert options.config(arguments(), {}) is None


def test_config() -> None:
    args = arguments("--lanes", "8", "--lane-axis", "n,m", "--split", "4", "--dot", "avx2")
    assert options.config(args, {"BN": 32}) == Config({"BN": 32}, 8, ("n", "m"), 4, "avx2")
    with pytest.raises(UsageError, match="there is no dot `fast`"):
        options.config(arguments("--dot", "fast"), {})


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("simt-16-dp4a", Target("simt", 16, "dp4a")),
        ("simt", Target("simt", 16, "dp4a")),
        ("simd-8", Target("simd", 8, "emulated")),
        (
            "simt-16-dp4a-block_read-vload_half",
            Target("simt", 16, "dp4a", features=frozenset({"block_read", "vload_half"})),
        ),
    ],
)
def test_targets_by_name(text: str, target: Target) -> None:
    assert options.parse_target(text) == target


@pytest.mark.parametrize("text", ["cuda", "simd-many", "simt-16-fast"])
def test_bad_targets(text: str) -> None:
    with pytest.raises(CallError, match="is no target"):
        options.parse_target(text)


def test_target_of_a_device_goes_by_kind_or_name() -> None:
    simd, simt = Target("simd", 16, "vnni512", "pocl"), Target("simt", 16)
    device = SimpleNamespace(targets=lambda: (simd, simt))
    pick = options.target
    assert pick(arguments(), device) is None  # type: ignore[arg-type]
    assert pick(arguments("--target", "simt"), device) is simt  # type: ignore[arg-type]
    assert pick(arguments("--target", "simd-16-vnni512"), device) is simd  # type: ignore[arg-type]


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose only device is the interpreter, since PoCL lacks its linker."""
    devices = importlib.import_module("ferro.runtime.devices")  # the package has one of that name
    opened = SimpleNamespace(info=SimpleNamespace(kind="interpreter"))
    monkeypatch.delenv("FERRO_DEVICE", raising=False)
    monkeypatch.setattr(devices, "open_device", lambda name, threads: opened)
    monkeypatch.setattr(devices, "missing", lambda: ("PoCL needs `ld` (package binutils)",))


@pytest.mark.usefixtures("bare_machine")
def test_what_is_missing_is_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    options.open_device(argparse.Namespace(device=None, threads=None))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "PoCL needs `ld` (package binutils)",
        "no OpenCL device serves here: using the interpreter (`ferro doctor` says why)",
    ]


@pytest.mark.usefixtures("bare_machine")
def test_who_asks_for_a_device_is_told_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options.open_device(argparse.Namespace(device="interpreter", threads=None))
    monkeypatch.setenv("FERRO_DEVICE", "interpreter")
    options.open_device(argparse.Namespace(device=None, threads=None))
    assert capsys.readouterr().err == ""
