"""Tensor types of GGUF: their names, and how many bytes a block of values takes."""

from __future__ import annotations

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES


@dataclass(frozen=True)
class TensorType:
    """``values`` numbers along a row take ``nbytes`` bytes together."""

    name: str
    values: int
    nbytes: int

    def __str__(self) -> str:
        return self.name


TYPES: dict[int, TensorType] = {
    int(code): TensorType(code.name, *sizes) for code, sizes in GGML_QUANT_SIZES.items()
}
