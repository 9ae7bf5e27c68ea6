"""Which config a launch takes: forced, won here, shipped, or the kernel's default."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ferro.codegen.errors import ConfigError
from ferro.codegen.layouts import is_biased
from ferro.codegen.program import Config, Target
from ferro.dsl import kernel, tl
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import bind
from ferro.runtime import configs
from ferro.runtime.configs import Chooser, Shipped, kernel_key, launch_sizes, parse_config
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.trials import Place, Trial, Trials
from kernels_src.norms import rmsnorm

INFO = DeviceInfo(0, "intel", "Xeon 9", "Intel(R) OpenCL", "3.0", "7", "cpu")
SIMD = Target("simd", 16, "vnni512", "intel", frozenset({"vload_half"}))
SIZES = {"M": 3, "K": 1000}


@kernel
def double(
    x: tl.ptr[tl.f32, N],
    y: tl.out[tl.f32, N],
    ACT: tl.const["one", "two"] = "one",
    D: tl.const = 64,
    BLOCK: tl.schedule[16, 64] = 16,
):
    n = tl.block(0, N, BLOCK)
    tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRO_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(configs.FORCE, raising=False)
    monkeypatch.setattr(configs, "shipped", lambda: ())


def won(config: Config, sizes: dict[str, int] = SIZES, target: Target = SIMD) -> None:
    trials = Trials.of(INFO)
    trials.add(
        Trial("norms.rmsnorm", target.name, sizes, config, "p", "timed", relative=0.5, seconds=1.0)
    )
    trials.save()


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config({"BM": 8, "BN": 32}),
        Config({"BM": 8}, lanes=8, lane_axis=("n", "m"), split=2, dot="avx2"),
    ],
)
def test_a_config_is_read_as_it_prints_itself(config: Config) -> None:
    assert parse_config(str(config)) == config


@pytest.mark.parametrize("text", ["BM", "BM=", "=8", "BM=x", "lanes=many", "BM:8"])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="FERRO_FORCE_CONFIG"):
        parse_config(text)


def test_forced_configs_by_kernel() -> None:
    found = configs.parse_forced("BM=8, BN=32; rmsnorm: BLOCK=64 ;softmax:default;")
    assert found == {
        "": Config({"BM": 8, "BN": 32}),
        "rmsnorm": Config({"BLOCK": 64}),
        "softmax": Config(),
    }


@pytest.mark.parametrize("text", ["split=2", "lanes=8", "BM=8 group=4; rmsnorm: BLOCK=64"])
def test_what_suits_one_kernel_needs_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match="write `KERNEL: "):
        configs.parse_forced(text)


def test_a_value_that_a_kernel_does_not_offer_is_not_forced_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(configs.FORCE, "BLOCK=7")
    assert Chooser(INFO)(rmsnorm, SIZES, SIMD) == Config()


# --- the order ----------------------------------------------------------------------------------


def test_forced_comes_first_and_only_with_own_constexprs(monkeypatch: pytest.MonkeyPatch) -> None:
    won(Config({"BLOCK": 1024}))
    monkeypatch.setenv(configs.FORCE, "BM=8 BLOCK=64 prefetch=0; double: default")
    chooser = Chooser(INFO)
    assert chooser(rmsnorm, SIZES, SIMD) == Config({"BLOCK": 64}, prefetch=False)
    assert chooser(double, {"N": 5}, SIMD) == Config()


def test_own_winner_for_the_bucket_and_the_target() -> None:
    won(Config({"BLOCK": 1024}))
    chooser = Chooser(INFO)
    assert chooser(rmsnorm, {"M": 4, "K": 513}, SIMD) == Config({"BLOCK": 1024})
    assert chooser(rmsnorm, {"M": 5, "K": 513}, SIMD) is None
    assert chooser(rmsnorm, SIZES, Target("simt", 16)) is None


def test_another_driver_has_winners_of_its_own() -> None:
    won(Config({"BLOCK": 1024}))
    newer = DeviceInfo(0, "intel", "Xeon 9", "Intel(R) OpenCL", "3.0", "8", "cpu")
    assert Chooser(newer)(rmsnorm, SIZES, SIMD) is None


def shipped(sizes: dict[str, int], block: int, **changes: Any) -> Shipped:
    facts = {"devices": ("intel",), "names": (), "targets": ("simd-16-vnni512",)} | changes
    return Shipped(kernel="norms.rmsnorm", sizes=sizes, config=Config({"BLOCK": block}), **facts)


def test_shipped_winners_serve_where_nothing_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (shipped({}, 256), shipped({"M": 4}, 64), shipped({"M": 8}, 1024))
    monkeypatch.setattr(configs, "shipped", lambda: table)
    assert Chooser(INFO)(rmsnorm, SIZES, SIMD) == Config({"BLOCK": 64})
    assert Chooser(INFO)(rmsnorm, {"M": 99, "K": 1}, SIMD) == Config({"BLOCK": 256})
    won(Config({"BLOCK": 1024}))
    assert Chooser(INFO)(rmsnorm, SIZES, SIMD) == Config({"BLOCK": 1024})


@pytest.mark.parametrize(
    ("changes", "serves"),
    [
        ({}, True),
        ({"devices": ("pocl",)}, False),
        ({"names": ("N100", "Xeon")}, True),
        ({"names": ("N100",)}, False),
        ({"targets": ("simd-16-vnni512-vload_half",)}, True),
        ({"targets": ("simd-16",)}, True),
        ({"targets": ("simd-1",)}, False),
        ({"targets": ("simt-16",)}, False),
    ],
)
def test_which_devices_a_shipped_winner_serves(changes: dict[str, Any], serves: bool) -> None:
    assert shipped({}, 64, **changes).serves(INFO, SIMD) is serves


@pytest.mark.parametrize("config", [Config({"BLOCK": 65}), Config({"BM": 1})])
def test_a_winner_of_an_older_kernel_is_not_taken(config: Config) -> None:
    won(config)
    assert Chooser(INFO)(rmsnorm, SIZES, SIMD) is None


def test_the_log_says_once_that_there_is_only_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chooser = Chooser(INFO)
    with caplog.at_level(logging.INFO, "ferro.runtime.configs"):
        for rows in (1, 2, 99, 1):
            assert chooser(rmsnorm, {"M": rows, "K": 64}, SIMD) is None
    (record,) = caplog.records
    assert "ferro autotune rmsnorm" in record.getMessage()


def test_the_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    won(Config({"BLOCK": 1024}))
    chooser = Chooser(INFO)
    assert chooser(rmsnorm, SIZES, SIMD) == Config({"BLOCK": 1024})
    monkeypatch.setattr(Trials, "of", lambda info: pytest.fail("read again"))
    assert chooser(rmsnorm, SIZES, SIMD) == Config({"BLOCK": 1024})
    assert chooser(rmsnorm, {"M": 77, "K": 64}, SIMD) is None


# --- keys ---------------------------------------------------------------------------------------


def test_shipped_kernels_are_named_by_file_others_by_text() -> None:
    assert kernel_key(rmsnorm) == "norms.rmsnorm"
    name, _, text = kernel_key(double).partition("@")
    assert name == "double" and len(text) == 12
    other = KernelDefinition.from_source(double.source.replace("2.0", "3.0"), "other.py")
    assert kernel_key(other) not in (kernel_key(double), "double")


def test_sizes_are_dimensions_and_integer_constants_of_meaning() -> None:
    import numpy as np

    made = double.specialise()
    x = np.zeros(7, np.float32)
    assert launch_sizes(made, bind(made, {"x": x, "y": x.copy()})) == {"D": 64, "N": 7}


# --- what is shipped ----------------------------------------------------------------------------

all_shipped = configs.shipped
TABLES = sorted(Path(__file__).parents[3].glob("autotune/winners/*.json"))


@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.stem)
def test_shipped_tables_fit_the_kernels(path: Path) -> None:
    from ferro import catalogue
    from ferro.commands.options import parse_target

    for entry in configs.read_table(json.loads(path.read_text())):
        definition = catalogue.find(entry.kernel).definition
        assert kernel_key(definition) == entry.kernel
        assert configs.fits(entry.config, definition)
        quantised = [p for p in definition.parameters.values() if p.kind == "q8"]
        for target in map(parse_target, entry.targets):
            # weights are packed before a launch is known: a winner must read them as they are
            if quantised:
                assert entry.config.lanes in (None, target.lanes)
                assert is_biased(entry.config.dot or target.dot) == is_biased(target.dot)
        assert entry.covers(Place.of(entry.kernel, "", entry.sizes))


def test_tables_are_found_beside_the_tuner() -> None:
    assert {path.parent.name for path in TABLES} <= {"winners"}
    entries = [json.loads(path.read_text())["winners"] for path in TABLES]
    assert len(all_shipped()) == sum(map(len, entries))
