"""How the makers of a model want it to be sampled.

What a file says itself (``general.sampling.*``) counts; families that say it on their pages only
are listed here.
"""

from __future__ import annotations

from typing import Any

from ferro.models.errors import WrongValue
from ferro.models.gguf_metadata import Metadata
from ferro.models.sampler import BadSampling, Sampling

PREFIX = "general.sampling."
REALS = {
    "temp": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
}
INTEGERS = {"top_k": "top_k"}
LIQUID = {
    "temperature": 0.05,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "repeat_penalty": 1.05,
    "repeat_last_n": -1,
}
GEMMA = {"temperature": 1.0, "top_k": 64, "top_p": 0.95, "min_p": 0.0}
FAMILIES: dict[str, dict[str, Any]] = {"lfm2": LIQUID, "gemma3": GEMMA}


def recommended(metadata: Metadata) -> dict[str, Any]:
    """The fields of a ``Sampling`` that are recommended for the model of a file. Raises
    WrongValue."""
    found = dict(FAMILIES.get(metadata.text("general.architecture", ""), {}))
    for key, name in REALS.items():
        if PREFIX + key in metadata:
            found[name] = metadata.real(PREFIX + key)
    for key, name in INTEGERS.items():
        if PREFIX + key in metadata:
            found[name] = metadata.integer(PREFIX + key)
    try:
        Sampling(**found)
    except BadSampling as error:
        raise WrongValue(metadata.path, f"the keys `{PREFIX}*`: {error}") from None
    return found
