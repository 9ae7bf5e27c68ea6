"""A model that sees whole inputs, on a device: from tokens to rows, by packed passes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ferro.codegen.program import Target
from ferro.models import loading, packing
from ferro.models.architectures import ARCHITECTURES, kind_of, recognise
from ferro.models.encoder_layers import EncoderLayers
from ferro.models.errors import UnsupportedArchitecture
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.loaded import Loaded, at_least_1, choice, load
from ferro.models.model import Model
from ferro.models.packing import Input, Shape
from ferro.models.plans import Plans, Recorded
from ferro.models.scratch import Scratch
from ferro.runtime.device import Device

Rows = npt.NDArray[np.float32]
LAUNCHES = 16  # of a long pass between two waits, if nobody else uses the device
BATCH = 512  # rows: with more, int8 products are no faster, and a pass would hold up others longer


class Encoder(Model):
    """An encoder of one kind of model. ``context`` is how many tokens an input may have, ``batch``
    how many rows of several inputs share a pass."""

    kind: str
    usual_context: int

    def __init__(self, file: GgufFile, loaded: Loaded, context: int, batch: int) -> None:
        self.context, self.batch = context, batch
        encode: Any = ARCHITECTURES[loaded.made.architecture].encode
        shared = Scratch(loaded.device, packing.rounded(batch))

        def prepare(shape: Shape) -> EncoderLayers:
            alone = shape.rows > shared.rows  # a pass that long is rare: it gives its memory back
            return EncoderLayers(loaded, shape, Scratch(loaded.device) if alone else shared)

        plans = Plans(loaded.device, prepare, lambda run: encode(run, loaded.made), shared)
        super().__init__(file, loaded, plans)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        device: Device,
        *,
        weights: str = "q4",
        target: Target | None = None,
        batch: int = BATCH,
        context: int | None = None,
    ) -> Self:
        """Load a model file onto ``device``.

        ``weights`` is "q4" (matrices that have 4 bits in the file keep 4, all others get 8), "q8"
        or "f32" (then activations are float32 too); ``batch`` is how many rows of several inputs
        share a pass, ``context`` how many tokens an input may have (default: ``usual_context``, or
        what the model was made for); ``target`` is how kernels are lowered (default: the device's
        own).

        Raises ModelError, BadOption, OutOfMemory (before weights are read).
        """
        choice("weights", weights, loading.FORMS)
        file = GgufFile(path)
        made = recognise(file)
        found = kind_of(file, made)
        if found != cls.kind or ARCHITECTURES[made.architecture].encode is None:
            raise UnsupportedArchitecture(
                str(file.path), f"this `{made.architecture}` model is no {cls.kind} model: {found}"
            )
        cls.check(file, made)
        context = min(cls.usual_context, made.context) if context is None else context
        at_least_1(context=context, batch=batch)
        return cls(file, load(file, device, made, weights, context, target), context, batch)

    @classmethod
    def check(cls, file: GgufFile, made: Hyperparameters) -> None:
        """Raises ModelError for a file of the kind that is not supported."""

    def check_inputs(self, inputs: Sequence[Input]) -> None:
        """Raises PassError or ContextFull for inputs that the model does not take."""
        packing.check(inputs, self.hyperparameters.vocabulary, self.context)

    def packed(self, inputs: Sequence[Input]) -> list[list[int]]:
        """Which inputs share a pass, by number; one that is longer than a batch has its own."""
        return packing.packed([len(each) for each in inputs], self.batch)

    def forward(self, inputs: Sequence[Input]) -> Rows:
        """One pass: what the model gives, float32 [inputs or wanted rows, ...], in order.

        An input's rows are the same bits in any company. Threads wait for each other. Raises
        PassError and ContextFull before anything is computed; ModelClosed, OutOfMemory, DeviceLost.
        """
        self.check_inputs(inputs)
        with self._turn():
            recorded = self._prepared(inputs)
            if sum(map(len, inputs)) > BATCH:
                # a wait for all of it may be longer than a device may be silent
                for _ in self._launched(recorded.plan, LAUNCHES):
                    pass
            else:
                recorded.plan.run()
            return self._read(recorded, inputs)

    def in_parts(self, inputs: Sequence[Input], seconds: float) -> Iterator[Rows | None]:
        """As ``forward``, with rests after parts of about so many seconds, in which other work may
        use the device: None at each, and the result at last. For a pass that is longer than a
        batch: the memory of others is shared."""
        self.check_inputs(inputs)
        self.check_open()
        recorded = self._prepared(inputs)
        started = time.perf_counter()
        for _ in self._launched(recorded.plan, 1):
            if time.perf_counter() - started >= seconds:
                yield None
                started = time.perf_counter()
        yield self._read(recorded, inputs)

    def _launched(self, plan: Any, some: int) -> Iterator[None]:
        """All of a pass, waited for after ``some`` launches each."""
        for first in range(0, len(plan), some):
            plan.run(first, some)
            self.device.finish()
            yield

    def _prepared(self, inputs: Sequence[Input]) -> Recorded[EncoderLayers]:
        """The plan for inputs, which it will read."""
        shape = Shape.of(inputs)
        recorded = self._plans[shape]
        recorded.run.inputs.write(packing.numbers(inputs, shape))
        return recorded

    def _read(self, recorded: Recorded[EncoderLayers], inputs: Sequence[Input]) -> Rows:
        """What a plan has given for inputs."""
        wanted = sum(len(each.wanted) for each in inputs)
        return recorded.result.part(0, wanted or len(inputs)).read()

    def passes(
        self, inputs: Sequence[Input]
    ) -> Iterator[tuple[list[int], npt.NDArray[np.float32]]]:
        """All inputs, in as many passes as they need: the numbers of those of each pass, and what
        it gives. Raises what ``forward`` does, for any of them before the first pass."""
        self.check_inputs(inputs)
        for numbers in self.packed(inputs):
            yield numbers, self.forward([inputs[i] for i in numbers])
