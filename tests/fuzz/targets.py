"""The targets by their names."""

from __future__ import annotations

from tests.fuzz import chat_templates, gguf_files, kernels, vocabularies
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    "gguf": gguf_files.TARGET,
    "kernel": kernels.TARGET,
    "template": chat_templates.TARGET,
    "tokenizer": vocabularies.TARGET,
}
