"""Small vocabularies with llama.cpp's ids for some texts, and the large ones beside the tree."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from ferro.models.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "goldens"
NAMES = ("lfm2", "smollm", "gpt-2", "qwen2", "gemma3", "llama", "gemma4")


@functools.cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "tests/data/vocabularies.json").read_text())
    return found


def metadata(name: str, **changes: Any) -> dict[str, Any]:
    """The metadata of a small vocabulary; ``changes`` by the last part of their keys, None for a
    key that is to be missing."""
    own = dict(_data()[name]["metadata"])
    values = (metadata(own.pop("like")) if "like" in own else {}) | own
    values |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in values.items() if value is not None}


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    return Tokenizer(metadata(name))


def cases(name: str) -> list[tuple[str, list[int], list[int]]]:
    """Texts with their ids without and with special tokens."""
    return [(text, plain, special) for text, plain, special in _data()[name]["cases"]]
