"""The weights of a model on a device, with the tables of angles that its heads turn by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ferro.codegen.program import Target
from ferro.models import loading, rope, weights
from ferro.models.architectures import ARCHITECTURES
from ferro.models.architectures.blocks import ROPE_DIVISORS, parts
from ferro.models.errors import BadNumbers
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Layer
from ferro.models.rope import Rotation
from ferro.runtime.device import Device


class BadOption(ValueError):
    """A way to open a model that there is not."""

    exit_code = 2


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model on a device. ``weights`` go by the names of tensors, ``tables`` are cosines and
    sines [positions, rotated / 2]; ``quantised``: activations are int8."""

    device: Device
    target: Target | None
    made: Hyperparameters
    quantised: bool
    weights: Mapping[str, Any]
    tables: Mapping[Rotation, tuple[Any, Any]]

    def release(self) -> None:
        """Give the memory of the weights back."""
        for buffer in self.weights.values():
            buffer.release()


def choice(name: str, value: str, known: Iterable[str]) -> None:
    """Raises BadOption for a value that is none of those known."""
    if value not in known:
        raise BadOption(f"{name} `{value}` is not known (known: {', '.join(known)})")


def at_least_1(**options: int) -> None:
    """Raises BadOption."""
    for name, number in options.items():
        if number < 1:
            raise BadOption(f"{name} must be at least 1, got {number}")


def rotation(layer: Layer) -> Rotation:
    """How the heads of a layer turn."""
    return Rotation(layer.rope_base, layer.rotated, layer.rope_factor)


def kept(file: GgufFile, made: Hyperparameters, form: str) -> list[loading.Part]:
    """What a device keeps of a file."""
    return parts(ARCHITECTURES[made.architecture].tensors(made, file), file, form)


def load(
    file: GgufFile,
    device: Device,
    made: Hyperparameters,
    form: str,
    positions: int,
    target: Target | None = None,
) -> Loaded:
    """The weights in ``form`` and the tables of as many positions. Raises ModelError, OutOfMemory
    (before weights are read)."""
    wanted = kept(file, made, form)
    turnings = {rotation(layer) for layer in made.layers if layer.attends}
    size = sum(rope.nbytes(turning, positions) for turning in turnings)
    loading.check_room(file, device, wanted, size, f"tables of {positions} positions")
    tables = {}
    divisors = _divisors(file)
    for turning in turnings:
        cos, sin = rope.tables(turning, positions, divisors)
        tables[turning] = (device.array(cos, "scratch"), device.array(sin, "scratch"))
    buffers = loading.load(file, device, wanted, target)
    return Loaded(device, target, made, form != "f32", buffers, tables)


def _divisors(file: GgufFile) -> list[float]:
    """What the frequencies of rotary embeddings are divided by, if the file says so."""
    if ROPE_DIVISORS not in file.tensors:
        return []
    found = weights.f32(file, ROPE_DIVISORS)
    if not (np.isfinite(found) & (found > 0)).all():
        raise BadNumbers(str(file.path), f"tensor `{ROPE_DIVISORS}` has values not above 0")
    return [float(value) for value in found]
