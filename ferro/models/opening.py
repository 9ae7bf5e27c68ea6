"""Any model file as the model that it is."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from ferro.models.architectures import kind_of, recognise
from ferro.models.decision_model import DecisionModel
from ferro.models.embedding_model import EmbeddingModel
from ferro.models.gguf import GgufFile
from ferro.models.known import located
from ferro.models.language_model import LanguageModel
from ferro.models.loaded import BadOption
from ferro.models.model import Model
from ferro.runtime import open_device
from ferro.runtime.device import Device

KINDS: dict[str, Callable[..., Model]] = {
    "language": LanguageModel.open,
    "embedding": EmbeddingModel.open,
    "decision": DecisionModel.open,
}


def load(
    path: str | os.PathLike[str], device: Device | str | int | None = None, **options: Any
) -> Any:
    """The model of a file, or of a name that ``ferro pull`` knows, ready to run.

    ``device`` is one that is open, or goes by a name of ``open_device`` (default: the best one);
    such a one is closed with the model. ``options`` are those of ``open`` of the model's class:
    ``EmbeddingModel``, ``DecisionModel`` and ``LanguageModel``.

    Raises NoSuchModel, FileNotFoundError, ModelError, BadOption, NoSuchDevice, OutOfMemory.
    """
    file = GgufFile(located(os.fspath(path)))
    kind = kind_of(file, recognise(file))
    opened = KINDS[kind]
    known = [name for name, each in inspect.signature(opened).parameters.items() if _named(each)]
    for name in options:
        if name not in known:
            raise BadOption(f"{kind} models have no option `{name}` (known: {', '.join(known)})")
    if isinstance(device, Device):
        return opened(file.path, device, **options)
    own = open_device(device)
    try:
        model = opened(file.path, own, **options)
    except BaseException:
        own.close()
        raise
    model.owns_device = True
    return model


def _named(parameter: inspect.Parameter) -> bool:
    return parameter.kind is inspect.Parameter.KEYWORD_ONLY
