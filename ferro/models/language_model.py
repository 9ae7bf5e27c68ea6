"""A language model on a device: from tokens to logits, by plans of launches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.codegen.program import Target
from ferro.models import cache as caches
from ferro.models import loading, passes, snapshots
from ferro.models.architectures import ARCHITECTURES, recognise
from ferro.models.cache import KINDS, Cache
from ferro.models.chat import ChatTemplate
from ferro.models.completion import Options
from ferro.models.conversation import Conversation
from ferro.models.errors import UnsupportedArchitecture
from ferro.models.generation import Generation, Stream
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.layers import Layers
from ferro.models.loaded import Loaded, at_least_1, choice, kept, load
from ferro.models.model import Model
from ferro.models.passes import Piece, Shape
from ferro.models.plans import Plans
from ferro.models.snapshots import Snapshot
from ferro.runtime.device import Device

CONTEXT = 4096
MOST_ROWS = 1024


class LanguageModel(Model):
    """A language model on a device. Close it, or use ``with``.

    ``context`` is how many tokens a slot holds, ``slots`` how many sequences there may be,
    ``most_rows`` how many tokens a pass takes.
    """

    most_rows = MOST_ROWS

    def __init__(self, file: GgufFile, loaded: Loaded, cache: Cache) -> None:
        forward = _architecture(file, loaded.made)
        plans: Plans[Shape, Layers] = Plans(
            loaded.device,
            lambda shape: Layers(loaded, cache, shape),
            lambda run: forward(run, loaded.made),
        )
        super().__init__(file, loaded, plans)
        self.context, self.slots, self._cache = cache.context, cache.slots, cache

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
        choice("weights", weights, loading.FORMS)
        choice("cache", cache, KINDS)
        file = GgufFile(path)
        made = recognise(file)
        _architecture(file, made)
        caches.check_heads(str(file.path), made, cache)
        context = min(CONTEXT, made.context) if context is None else context
        at_least_1(context=context, slots=slots)
        needed = caches.nbytes(made, cache, context, slots)
        loading.check_room(file, device, kept(file, made, weights), needed)
        # caches first, since one that does not fit is found at once
        made_cache = Cache(device, made, cache, context, slots)
        loaded = load(file, device, made, weights, context, target)
        return cls(file, loaded, made_cache)

    def forward(self, pieces: Sequence[Piece]) -> npt.NDArray[np.float32]:
        """The logits of the wanted rows, float32 [sum of ``wanted``, vocabulary], pieces in order.

        Threads wait for each other. Raises ContextFull and PassError, before anything is computed;
        ModelClosed, OutOfMemory, DeviceLost.
        """
        passes.check(pieces, self.hyperparameters.vocabulary, self.most_rows)
        with self._turn():
            for piece in pieces:
                self._cache.check(piece)
            shape = Shape.of(pieces)
            recorded = self._plans[shape]
            recorded.run.inputs.write(passes.numbers(pieces, shape, self.context))
            recorded.plan.run()
            self._cache.advance(pieces)
            return recorded.result.part(0, sum(piece.wanted for piece in pieces)).read()

    def plan_of(self, pieces: Sequence[Piece]) -> Any:
        """The plan that a pass of this shape replays."""
        return self._plans[Shape.of(pieces)].plan

    @property
    def cache_layers(self) -> Sequence[Mapping[str, Any]]:
        """The buffers that each layer keeps between passes, by the parameters of its kernels."""
        return self._cache.layers

    def save(self, slot: int) -> Snapshot:
        """A copy of what a slot holds, which is not nothing. Raises OutOfMemory, DeviceLost."""
        return Snapshot(self.device, self._cache, slot)

    def restore(self, snapshot: Snapshot, slot: int, tokens: int | None = None) -> None:
        """Make a slot hold what was saved, or its first ``tokens`` if ``rewinds``. Raises
        DeviceLost."""
        kept = snapshot.tokens if tokens is None else tokens
        snapshot.restore(self.device, self._cache, slot, kept)

    def snapshot_bytes(self, tokens: int) -> int:
        """What a copy of that many tokens takes on the device."""
        return snapshots.nbytes(self._cache, tokens)

    @property
    def rewinds(self) -> bool:
        """Whether a slot can be taken back to any position before its end."""
        return all(layer.attends for layer in self.hyperparameters.layers)

    def generate(self, prompt: str, options: Options | None = None) -> Generation:
        """A completion of ``prompt`` in slot 0, to be iterated over for pieces of its text: text
        that goes on from the prompt as it is. Raises BadRequest, BadSampling."""
        return Stream(self).complete(self.tokenizer.encode(prompt), options)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], options: Options | None = None
    ) -> Generation:
        """The answer to ``messages`` (of OpenAI's chat completions) likewise, by the template of
        the file. Raises BadConversation, TemplateError, BadRequest, BadSampling."""
        with ChatTemplate.of_model(self.file.metadata, self.tokenizer) as template:
            return self.generate(template.render(Conversation(messages)), options)

    def _release(self) -> None:
        super()._release()
        self._cache.release()


def _architecture(file: GgufFile, made: Hyperparameters) -> Any:
    """The forward pass of a language model. Raises UnsupportedArchitecture for an encoder."""
    forward = ARCHITECTURES[made.architecture].forward
    if forward is None or not made.causal:
        raise UnsupportedArchitecture(
            str(file.path), f"this `{made.architecture}` model is an encoder: it generates no text"
        )
    return forward
