"""What sequences leave behind on a device: keys and values, and the states of short convolutions.

A slot holds one sequence. Its keys and values are ``context`` rows of every attention layer's
buffers, stored as float32, float16, or int8 with a float32 scale for each 32 values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ferro.models import costs
from ferro.models.errors import WrongValue
from ferro.models.hyperparameters import Hyperparameters, Layer
from ferro.models.passes import ContextFull, PassError, Piece
from ferro.runtime.device import Device
from kernels_src.attention import attention, attention_f16, attention_i8
from kernels_src.heads import heads_f16, heads_f32, heads_i8

PURPOSE = "kv"


@dataclass(frozen=True)
class Kind:
    """How keys and values are stored, and the kernels that write and read them."""

    dtype: Any
    heads: Any
    attention: Any
    scaled: bool = False


KINDS = {
    "f32": Kind(np.float32, heads_f32, attention),
    "f16": Kind(np.float16, heads_f16, attention_f16),
    "int8": Kind(np.int8, heads_i8, attention_i8, scaled=True),
}


class Cache:
    """The slots of one model. ``layers`` are the buffers of each, by their names in kernels: "k"
    and "v" [slots * context, kv heads, head], with "k_scale" and "v_scale" where they are scaled;
    "state" [slots, taps - 1, width] of a convolution."""

    def __init__(
        self, device: Device, made: Hyperparameters, kind: str, context: int, slots: int
    ) -> None:
        """Raises OutOfMemory."""
        self.kind, self.context, self.slots = KINDS[kind], context, slots
        self._rewinds = all(layer.attends for layer in made.layers)
        self._ends = [0] * slots
        self.layers = [self._buffers(device, made, layer) for layer in made.layers]

    def check(self, piece: Piece) -> None:
        """Raises ContextFull or PassError for a piece that does not fit what its slot holds."""
        if not 0 <= piece.slot < self.slots:
            raise PassError(f"there is no slot {piece.slot} (there are {self.slots})")
        if piece.end > self.context:
            raise ContextFull(
                f"the context is full: {piece.end} tokens in a context of {self.context}"
            )
        end = self._ends[piece.slot]
        if piece.start > end:
            raise PassError(
                f"a piece starts at position {piece.start}, "
                f"but slot {piece.slot} holds {end} tokens"
            )
        if piece.start not in (0, end) and not self._rewinds:
            raise PassError(
                f"a piece starts at position {piece.start}, but the short convolutions of slot "
                f"{piece.slot} stand at {end}: they go on from there, or begin anew at 0"
            )

    def advance(self, pieces: Sequence[Piece]) -> None:
        """Take note of what a pass has written."""
        for piece in pieces:
            self._ends[piece.slot] = piece.end

    def end(self, slot: int) -> int:
        """How many tokens a slot holds."""
        return self._ends[slot]

    def hold(self, slot: int, tokens: int) -> None:
        """Take note that a slot was made to hold as many tokens by other means than a pass."""
        self._ends[slot] = tokens

    def release(self) -> None:
        """Give the memory back."""
        for buffers in self.layers:
            for buffer in buffers.values():
                buffer.release()

    def _buffers(self, device: Device, made: Hyperparameters, layer: Layer) -> dict[str, Any]:
        if not layer.attends:
            shape = (self.slots, made.taps - 1, made.width)
            return {"state": device.empty(shape, np.float32, PURPOSE)}
        rows = (self.slots * self.context, layer.kv_heads)
        shape = (*rows, layer.head)
        found = {name: device.empty(shape, self.kind.dtype, PURPOSE) for name in ("k", "v")}
        if self.kind.scaled:
            shape = (*rows, layer.head // costs.SCALED)
            found |= {
                name: device.empty(shape, np.float32, PURPOSE) for name in ("k_scale", "v_scale")
            }
        return found


def nbytes(made: Hyperparameters, kind: str, context: int, slots: int) -> int:
    """What the slots take on a device."""
    return costs.kv_cache(made, context * slots)[kind] + costs.state(made) * slots


def check_heads(path: str, made: Hyperparameters, kind: str) -> None:
    """Raises WrongValue for sizes of heads that the kernels do not have."""
    groups = KINDS[kind].attention.parameters["GROUP"].choices
    for layer in filter(lambda layer: layer.attends, made.layers):
        if layer.heads // layer.kv_heads not in groups:
            raise WrongValue(
                path,
                f"{layer.heads} heads of queries share {layer.kv_heads} of keys and values; "
                f"supported are {', '.join(map(str, groups))} heads for each",
            )
        if KINDS[kind].scaled and layer.head % costs.SCALED:
            raise WrongValue(
                path,
                f"heads of {layer.head} cannot be stored as int8, which takes multiples of "
                f"{costs.SCALED}: choose a cache of another type",
            )
