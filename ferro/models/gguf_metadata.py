"""Metadata by string keys, as the types that a reader expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ferro.models.errors import MissingKey, WrongValue
from ferro.models.gguf_cursor import Texts
from ferro.models.gguf_header import Value

MOST = (1 << 31) - 1


class Metadata(Mapping[str, Value]):
    """The keys of a file. The typed getters raise MissingKey and WrongValue, naming the key; a
    ``default`` that is given stands for an absent key."""

    def __init__(self, path: str, values: Mapping[str, Value]) -> None:
        self.path = path
        self._values = dict(values)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def integer(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number from ``least`` to 2^31 - 1."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self._wrong(key, value, f"a whole number from {least} to {MOST}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
            raise self._wrong(key, value, "a finite number")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or False."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def integers(
        self, key: str, count: int, default: int | None = None, least: int = 0
    ) -> tuple[int, ...]:
        """``count`` whole numbers: an array of as many, or one number that stands for all."""
        value = self._value(key, default)
        if not isinstance(value, np.ndarray):
            return (self.integer(key, default, least),) * count
        fitting = value.dtype.kind in "iu" and len(value) == count
        if not fitting or not all(least <= n <= MOST for n in value.tolist()):
            raise self._wrong(key, value, f"{count} whole numbers from {least} to {MOST}")
        return tuple(value.tolist())

    def array(self, key: str) -> npt.NDArray[Any]:
        """An array of numbers or of truth values."""
        value = self._value(key, None)
        if not isinstance(value, np.ndarray):
            raise self._wrong(key, value, "an array of numbers")
        return value

    def texts(self, key: str) -> Texts:
        """An array of texts."""
        value = self._value(key, None)
        if not isinstance(value, Texts):
            raise self._wrong(key, value, "an array of texts")
        return value

    def _value(self, key: str, default: Value | None) -> Value:
        value = self._values.get(key, default)
        if value is None:
            raise MissingKey(self.path, f"the key `{key}` is missing")
        return value

    def _wrong(self, key: str, value: Value, wanted: str) -> WrongValue:
        return WrongValue(self.path, f"the key `{key}` must be {wanted}, it is {shown(value)}")


def shown(value: Value, longest: int = 60) -> str:
    """A value in a few words."""
    if isinstance(value, Texts):
        return f"{len(value)} texts"
    if isinstance(value, np.ndarray) and len(value) > 32:
        kind = "truth values" if value.dtype == bool else f"{value.dtype} numbers"
        return f"{len(value)} {kind}"
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _finite(value: float) -> bool:
    return value - value == 0
