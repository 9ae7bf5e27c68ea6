"""What a model takes on a device, in bytes, from its header alone."""

from __future__ import annotations

from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters
from ferro.models.loading import FORMS, kept_bytes, parts

SCALED = 32  # int8 caches keep one float32 scale for as many values
CACHES = {"f32": 4.0, "f16": 2.0, "int8": 1 + 4 / SCALED}


def weights(file: GgufFile) -> dict[str, int]:
    """Bytes of all weights for each form in which they can be kept."""
    return {form: sum(kept_bytes(file, part) for part in parts(file, form)) for form in FORMS}


def kv_cache(made: Hyperparameters, context: int) -> dict[str, int]:
    """Bytes of the keys and values of ``context`` tokens, for each type of cache. An encoder, which
    sees all of its text at once, keeps none."""
    numbers = 2 * context * sum(layer.kv_width for layer in made.layers)
    return {name: int(numbers * size) if made.causal else 0 for name, size in CACHES.items()}


def state(made: Hyperparameters) -> int:
    """Bytes of the inputs that short convolutions remember of a text, in float32."""
    convolutions = sum(not layer.attends for layer in made.layers)
    return 4 * convolutions * (made.taps - 1) * made.width if made.causal and made.taps else 0
