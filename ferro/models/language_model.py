"""A language model on a device: from tokens to logits, by plans of launches."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.codegen.program import Target
from ferro.models import cache as caches
from ferro.models import loading, passes, rope, snapshots, weights
from ferro.models.architectures import ARCHITECTURES, recognise
from ferro.models.architectures.blocks import ROPE_DIVISORS, parts
from ferro.models.cache import KINDS, Cache
from ferro.models.errors import BadNumbers, UnsupportedArchitecture
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.layers import Layers, Loaded, rotation
from ferro.models.passes import Piece, Shape
from ferro.models.snapshots import Snapshot
from ferro.models.tokenizer import Tokenizer
from ferro.runtime.device import Device
from ferro.runtime.errors import DeviceLost

CONTEXT = 4096
MOST_ROWS = 1024
PLANNED = 64 << 20  # bytes of scratch that plans keep besides the newest one's


class BadOption(ValueError):
    """A way to open a model that there is not."""

    exit_code = 2


@dataclass(frozen=True)
class Recorded:
    """A plan for passes of one shape, what it reads and where its logits are."""

    layers: Layers
    plan: Any
    logits: Any


class LanguageModel:
    """Weights, caches and plans of one model file on one device. Close it, or use ``with``.

    ``context`` is how many tokens a slot holds, ``slots`` how many sequences there may be,
    ``most_rows`` how many tokens a pass takes.
    """

    most_rows = MOST_ROWS

    def __init__(
        self, file: GgufFile, loaded: Loaded, tokenizer: Tokenizer, context: int, slots: int
    ) -> None:
        self.file, self.tokenizer, self.context, self.slots = file, tokenizer, context, slots
        self.device, self.hyperparameters = loaded.device, loaded.made
        self._loaded = loaded
        self._forward = _architecture(file, loaded.made)
        self._plans: OrderedDict[Shape, Recorded] = OrderedDict()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        device: Device,
        *,
        weights: str = "q4",
        cache: str = "f16",
        context: int | None = None,
        slots: int = 1,
        target: Target | None = None,
    ) -> LanguageModel:
        """Load a model file onto ``device``.

        ``weights`` is "q4" (matrices that have 4 bits in the file keep 4, all others get 8), "q8"
        or "f32" (then activations are float32 too), ``cache`` "f32", "f16" or "int8"; ``context``
        is how many tokens a slot holds (default: 4096, or what the model was made for), ``slots``
        how many sequences there may be; ``target`` is how kernels are lowered (default: the
        device's own).

        Raises ModelError, BadOption, OutOfMemory (before weights are read).
        """
        _choice("weights", weights, loading.FORMS)
        _choice("cache", cache, KINDS)
        file = GgufFile(path)
        made = recognise(file)
        _architecture(file, made)
        caches.check_heads(str(file.path), made, cache)
        context = min(CONTEXT, made.context) if context is None else context
        for name, number in (("context", context), ("slots", slots)):
            if number < 1:
                raise BadOption(f"{name} must be at least 1, got {number}")
        tokenizer = Tokenizer(file.metadata)
        loaded = _load(file, device, made, weights, cache, context, slots, target)
        return cls(file, loaded, tokenizer, context, slots)

    def forward(self, pieces: Sequence[Piece]) -> npt.NDArray[np.float32]:
        """The logits of the wanted rows, float32 [sum of ``wanted``, vocabulary], pieces in order.

        Raises ContextFull and PassError, before anything is computed; OutOfMemory, DeviceLost.
        """
        passes.check(pieces, self.hyperparameters.vocabulary, self.most_rows)
        for piece in pieces:
            self._loaded.cache.check(piece)
        recorded = self._recorded(Shape.of(pieces))
        recorded.layers.inputs.write(pieces, self.context)
        recorded.plan.run()
        self._loaded.cache.advance(pieces)
        return recorded.logits.part(0, sum(piece.wanted for piece in pieces)).read()

    def save(self, slot: int) -> Snapshot:
        """A copy of what a slot holds, which is not nothing. Raises OutOfMemory, DeviceLost."""
        return Snapshot(self.device, self._loaded.cache, slot)

    def restore(self, snapshot: Snapshot, slot: int, tokens: int | None = None) -> None:
        """Make a slot hold what was saved, or its first ``tokens`` if ``rewinds``. Raises
        DeviceLost."""
        kept = snapshot.tokens if tokens is None else tokens
        snapshot.restore(self.device, self._loaded.cache, slot, kept)

    def snapshot_bytes(self, tokens: int) -> int:
        """What a copy of that many tokens takes on the device."""
        return snapshots.nbytes(self._loaded.cache, tokens)

    @property
    def rewinds(self) -> bool:
        """Whether a slot can be taken back to any position before its end."""
        return all(layer.attends for layer in self.hyperparameters.layers)

    def close(self) -> None:
        """Give the device's memory back; what a lost device may still use stays."""
        with suppress(DeviceLost):
            self.device.finish()
        self._plans.clear()
        self._loaded.cache.release()
        for buffer in self._loaded.weights.values():
            buffer.release()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recorded(self, shape: Shape) -> Recorded:
        found = self._plans.pop(shape, None)
        if found is None:
            held = sum(recorded.layers.nbytes for recorded in self._plans.values())
            while held > PLANNED:
                held -= self._plans.popitem(last=False)[1].layers.nbytes
            found = self._record(shape)
        self._plans[shape] = found
        return found

    def _record(self, shape: Shape) -> Recorded:
        layers = Layers(self._loaded, shape)
        with self.device.plan() as plan:
            logits = self._forward(layers, self.hyperparameters)
        return Recorded(layers, plan, logits)


def _choice(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise BadOption(f"{name} `{value}` is not known (known: {', '.join(known)})")


def _architecture(file: GgufFile, made: Hyperparameters) -> Any:
    """The forward pass of a language model. Raises UnsupportedArchitecture for an encoder."""
    forward = ARCHITECTURES[made.architecture].forward
    if forward is None or not made.causal:
        raise UnsupportedArchitecture(
            str(file.path), f"this `{made.architecture}` model is an encoder: it generates no text"
        )
    return forward


def _load(
    file: GgufFile,
    device: Device,
    made: Hyperparameters,
    form: str,
    cache: str,
    context: int,
    slots: int,
    target: Target | None,
) -> Loaded:
    wanted = parts(ARCHITECTURES[made.architecture].tensors(made, file), file, form)
    kept = caches.nbytes(made, cache, context, slots)
    loading.check_room(file, device, wanted, kept)
    # caches first, since one that does not fit is found at once
    made_caches = Cache(device, made, cache, context, slots)
    tables = {}
    divisors = _divisors(file)
    for turning in {rotation(layer) for layer in made.layers if layer.attends}:
        cos, sin = rope.tables(turning, context, divisors)
        tables[turning] = (device.array(cos, "scratch"), device.array(sin, "scratch"))
    buffers = loading.load(file, device, wanted, target)
    return Loaded(device, target, made, form != "f32", buffers, made_caches, tables)


def _divisors(file: GgufFile) -> list[float]:
    """What the frequencies of rotary embeddings are divided by, if the file says so."""
    if ROPE_DIVISORS not in file.tensors:
        return []
    found = weights.f32(file, ROPE_DIVISORS)
    if not (np.isfinite(found) & (found > 0)).all():
        raise BadNumbers(str(file.path), f"tensor `{ROPE_DIVISORS}` has values not above 0")
    return [float(value) for value in found]
