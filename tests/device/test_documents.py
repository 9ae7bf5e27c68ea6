"""The Python in the tutorial and in the API page runs as it stands there."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ferro.dsl import CompileError
from ferro.runtime import open_device

DOCS = Path(__file__).parents[2] / "docs"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "add_norm", raising=False)
    return tmp_path


def test_first_try_of_the_tutorial_is_refused(workplace: Path) -> None:
    first, *_ = python_blocks("tutorial.md")
    (workplace / "add_norm.py").write_text(first)
    from add_norm import add_norm

    with pytest.raises(CompileError, match="FER511: a float sum over a tile"):
        add_norm.specialise()


@pytest.mark.device
def test_tutorial(workplace: Path) -> None:
    _, final, check, device, *_ = python_blocks("tutorial.md")
    (workplace / "add_norm.py").write_text(final)
    names: dict[str, object] = {}
    exec(check, names)
    exec(device, names)
    assert "#line 17" in names["source"]


@pytest.mark.device
def test_api_page(workplace: Path) -> None:
    names: dict[str, object] = {}
    for block in python_blocks("python-api.md"):
        exec(block, names)
    assert names["result"].shape == (3, 100)
    w, x = names["w"].dequantize(), names["x"].dequantize()
    y = np.empty((3, 100), np.float32)
    with open_device("interpreter") as device:
        device.run(names["matmul_q8"], w=names["w"], x=names["x"], y=y)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4)
