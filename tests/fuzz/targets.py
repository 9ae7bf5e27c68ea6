"""The targets by their names."""

from __future__ import annotations

from tests.fuzz import chat_templates, gguf_files, vocabularies
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    "gguf": gguf_files.TARGET,
    "template": chat_templates.TARGET,
    "tokenizer": vocabularies.TARGET,
}
