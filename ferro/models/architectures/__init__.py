"""The architectures that Ferro runs: hyperparameters, tensors and forward pass, one module each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferro.models.architectures import gemma3, gemma_embedding, gemma_embedding2, lfm2, llama
from ferro.models.architectures.blocks import Expected
from ferro.models.errors import MissingTensor, SplitFile, UnsupportedArchitecture, WrongShape
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.weights import check_type

if TYPE_CHECKING:
    from ferro.models.encoder_layers import EncoderLayers
    from ferro.models.layers import Layers
    from ferro.models.operations import Rows

ARCHITECTURE = "general.architecture"


@dataclass(frozen=True)
class Architecture:
    """``read`` gives the hyperparameters of a file, ``tensors`` what it must then hold; ``forward``
    of a language model launches a pass and gives the logits of its wanted rows, ``encode`` of an
    encoder launches one and gives a row for each input or each wanted row."""

    read: Callable[[GgufFile], Hyperparameters]
    tensors: Callable[[Hyperparameters, GgufFile], Iterator[Expected]]
    forward: Callable[[Layers, Hyperparameters], Rows] | None = None
    encode: Callable[[EncoderLayers, Hyperparameters], Rows] | None = None


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(llama.read, llama.tensors, llama.forward),
    "lfm2": Architecture(lfm2.read, lfm2.tensors, lfm2.forward, lfm2.encode),
    "gemma3": Architecture(gemma3.read, gemma3.tensors, gemma3.forward),
    "gemma-embedding": Architecture(
        gemma_embedding.read, gemma_embedding.tensors, encode=gemma_embedding.encode
    ),
    "gemma-embedding2": Architecture(
        gemma_embedding2.read, gemma_embedding2.tensors, encode=gemma_embedding2.encode
    ),
}


def recognise(file: GgufFile) -> Hyperparameters:
    """The hyperparameters of a file that Ferro can run, every needed tensor being there.

    Raises UnsupportedArchitecture, SplitFile, MissingKey, WrongValue, MissingTensor, WrongShape,
    UnsupportedType.
    """
    name = file.metadata.text(ARCHITECTURE)
    if name not in ARCHITECTURES:
        raise UnsupportedArchitecture.named(str(file.path), name, ARCHITECTURES)
    pieces = file.metadata.integer("split.count", 1)
    if pieces > 1:
        raise SplitFile(str(file.path), f"one of {pieces} pieces of a model, which must be joined")
    architecture = ARCHITECTURES[name]
    found = architecture.read(file)
    _check(file, architecture.tensors(found, file))
    return found


def kind_of(file: GgufFile, made: Hyperparameters) -> str:
    """What a recognised model is for: "language", "embedding" or "decision"."""
    if made.head_blocks or f"{made.architecture}.decision.type" in file.metadata:
        return "decision"
    return "language" if made.causal else "embedding"


def _check(file: GgufFile, expected: Iterator[Expected]) -> None:
    missing: list[str] = []
    for each in expected:
        info = file.tensors.get(each.name)
        if info is None:
            missing += [each.name] if each.needed else []
            continue
        if _plain(info.shape) != _plain(each.shape):
            raise WrongShape(
                str(file.path),
                f"tensor `{each.name}` has shape {list(info.shape)} instead of {list(each.shape)}",
            )
        check_type(file, info)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise MissingTensor(str(file.path), f"the tensor `{missing[0]}` is missing{more}")


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without ones in front: a matrix of one row is written as a vector at times."""
    return _plain(shape[1:]) if len(shape) > 1 and shape[0] == 1 else shape
