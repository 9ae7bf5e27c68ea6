"""Ferro: a tile-kernel compiler and inference engine for OpenCL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferro.runtime.device import Device

__version__ = "0.1.0"


def load(
    path: str | os.PathLike[str], device: Device | str | int | None = None, **options: Any
) -> Any:
    """The model of a GGUF file: ``ferro.load("x.gguf").embed(["a text"])``.

    ``ferro.models.opening.load`` says more.
    """
    # `import ferro` alone loads nothing
    from ferro.models import opening

    return opening.load(path, device, **options)
