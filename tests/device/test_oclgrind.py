"""simt kernels under oclgrind: no access out of range, no data race, and the interpreter's bits."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks import FULL

ROOT = Path(__file__).parents[2]
# Sizes that leave tails everywhere and still take a simulator no more than seconds.
SMALL = {
    "tests.kernels.test_softmax:TestSoftmax": {"m": 2, "n": 130},
    "tests.kernels.test_norms:TestRmsnormA8": {"m": 3, "k": 70},
    "tests.kernels.test_matmul:TestMatmul": {"m": 3, "n": 37, "k": 9},
    "tests.kernels.test_matmul:TestMatmulQ8Fused": {"m": 3, "n": 37, "k": 70},
    "tests.kernels.test_attention:TestHead64": {
        "b": 2,
        "g": 1,
        "queries": 3,
        "past": 66,
        "window": 2,
    },
    "tests.device.test_moves:TestTranspose": {"m": 19, "n": 21},
    "tests.device.test_moves:TestTop1": {"m": 2, "n": 1030},
}
MORE = {
    "tests.kernels.test_norms:TestRmsnorm": {"m": 2, "k": 4100},
    "tests.kernels.test_norms:TestLayernorm": {"m": 2, "k": 70},
    "tests.kernels.test_quantise:TestQuantise": {"m": 3, "k": 70},
    "tests.kernels.test_matmul:TestMatmulQ8": {"m": 5, "n": 70, "k": 520},
    "tests.kernels.test_matmul:TestGatedQ8": {"m": 3, "n": 37, "k": 70},
    "tests.kernels.test_embedding:TestEmbedQ8": {"v": 9, "t": 3, "k": 70},
    "tests.kernels.test_rotary:TestHalves": {"t": 2, "h": 1, "heads": 2, "c": 21, "rest": 3},
    "tests.kernels.test_vectors:TestGelu": {"n": 300},
    "tests.device.test_attentions:TestBiasedAttention": {"t": 3, "s": 70, "h": 2, "reach": 9},
    "tests.device.test_attentions:TestRotary2d": {"t": 2, "h": 2},
    "tests.device.test_convolutions:TestDepthwise": {"t": 7, "c": 37},
    "tests.device.test_convolutions:TestConv3x3": {"h": 5, "w": 4, "ci": 2, "co": 19},
    "tests.device.test_convolutions:TestShortConv": {"b": 2, "c": 37, "longest": 4},
    "tests.device.test_layers:TestClampedLinear": {"m": 3, "n": 19, "k": 70},
    "tests.device.test_layers:TestGroupNorm": {"g": 2, "s": 3, "t": 30},
    "tests.device.test_moves:TestAbsmax": {"m": 9, "n": 37},
}
CHILD = """
import importlib, sys
from tests.conformance import compare
from tests.stacks import open_stack

for place, sizes in eval(sys.argv[1]).items():
    module, name = place.split(":")
    print(place, file=sys.stderr, flush=True)
    case = getattr(importlib.import_module(module), name).case
    compare(case, open_stack("oclgrind-simt"), sizes, 1, False)
print("same bits")
"""
COLLISION = """
import numpy as np
from ferro.dsl.kernel import KernelDefinition
from tests.stacks import open_stack

collide = KernelDefinition.from_source('''
def collide(x: tl.ptr[tl.i32, N], at: tl.ptr[tl.i32, N], y: tl.out[tl.i32, 1]):
    i = tl.program_id(0, N)
    j = tl.load(at[i])
    tl.store(y[j], tl.load(x[i]), mask=(j >= 0) & (j < 1))
''')
x, at, y = np.arange(9, dtype=np.int32), np.zeros(9, np.int32), np.zeros(1, np.int32)
open_stack("oclgrind-simt")(collide, x=x, at=at, y=y)
"""
REPORT = re.compile(r"Invalid |data race|[Uu]ninitiali[sz]ed|divergence")

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not shutil.which("oclgrind"), reason="oclgrind is not installed"),
]


def under_oclgrind(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["oclgrind", "--data-races", sys.executable, "-c", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FERRO_CACHE_DIR": str(folder)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )


def test_a_race_is_reported(tmp_path: Path) -> None:
    done = under_oclgrind(tmp_path, COLLISION)
    assert done.returncode == 0, done.stderr[-3000:]
    assert REPORT.search(done.stderr)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("places", [SMALL, MORE] if FULL else [SMALL])
def test_nothing_to_report(places: dict[str, dict[str, int]], tmp_path: Path) -> None:
    done = under_oclgrind(tmp_path, CHILD, repr(places))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "same bits" in done.stdout
    assert not REPORT.search(done.stderr), done.stderr[-3000:]
