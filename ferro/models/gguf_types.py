"""Tensor types of GGUF: their names, and how many bytes a block of values takes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TensorType:
    """``values`` numbers along a row take ``nbytes`` bytes together."""

    name: str
    values: int
    nbytes: int

    def __str__(self) -> str:
        return self.name


def _sizes() -> dict[Any, tuple[int, int]]:
    """The table of the package ``gguf``. Its module alone is read: the whole package, with its
    writers and their YAML, takes 40 ms of every start."""
    loaded = sys.modules.get("gguf.constants")
    if loaded is None:
        package = importlib.util.find_spec("gguf")
        assert package is not None and package.origin is not None
        file = Path(package.origin).with_name("constants.py")
        spec = importlib.util.spec_from_file_location("ferro_gguf_constants", file)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    found: dict[Any, tuple[int, int]] = loaded.GGML_QUANT_SIZES
    return found


TYPES: dict[int, TensorType] = {
    int(code): TensorType(code.name, *sizes) for code, sizes in _sizes().items()
}
