"""Comparing launches, here with the interpreter on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ferro.catalogue import find
from ferro.codegen.program import Config
from ferro.measure import Request, compare, declared
from ferro.runtime.device import Device
from ferro.runtime.devices import open_device


@pytest.fixture
def interpreter() -> Iterator[Device]:
    with open_device("interpreter") as device:
        yield device


class Wrong:
    """A device whose results have one flipped bit."""

    def __init__(self, device: Device) -> None:
        self.device, self.info = device, device.info

    def run(self, kernel: Any, **arguments: Any) -> None:
        self.device.run(kernel, **arguments)
        arguments["y"].view(np.uint32)[0, 3] ^= 1


def request() -> Request:
    return Request(find("rmsnorm").definition, {"M": 2, "K": 70}, config=Config({"BLOCK": 64}))


def test_equal_bits(interpreter: Device) -> None:
    result = compare(request(), interpreter, interpreter)
    assert result.equal and result.differing == {"y": 0}
    assert result.sizes == {"M": 2, "K": 70}
    assert result.config == "BLOCK=64"
    assert result.bytes == 4 * (2 * 70 + 70 + 2 * 70)
    assert result.gigabytes_per_second > 0


def test_a_config_is_named_with_all_it_leaves_open() -> None:
    product = Request(find("matmul_q8").definition, {"M": 1, "N": 64, "K": 64})
    spelt_out = replace(product, config=Config(declared(product.definition)))
    assert product.config_name() == spelt_out.config_name() == "BM=4 BN=64 (default)"
    assert replace(product, config=Config({"BM": 1}, split=2)).config_name() == "BM=1 BN=64 split=2"


def test_one_wrong_bit_is_found(interpreter: Device) -> None:
    result = compare(request(), Wrong(interpreter), interpreter)  # type: ignore[arg-type]
    assert not result.equal and result.differing == {"y": 1}


def test_optional_buffers_are_left_out_unless_present(interpreter: Device) -> None:
    sizes = {"M": 2, "N": 16, "K": 32}
    plain = Request(find("matmul_q8").definition, sizes)
    fused = Request(find("matmul_q8").definition, sizes, present=frozenset({"bias"}))
    assert "bias" not in plain.arguments() and "bias" in fused.arguments()
    assert compare(fused, interpreter, interpreter).equal
