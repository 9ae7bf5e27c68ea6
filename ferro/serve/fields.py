"""Reads the fields of a JSON object, each by its type, and says what is wrong with which.

A field that is null counts as one that is missing. Who reads a field knows it: what nobody has read
is told by ``strangers``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ferro.serve.errors import ApiError, bad

LARGEST = 1 << 53  # whole numbers beyond are not exact in JSON


class Fields:
    """The fields of ``data``; ``path`` is in front of their names in errors, which are 400."""

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self._data, self._path = data, path
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        self._read.add(name)
        return self._data.get(name) is not None

    def value(self, *names: str) -> Any:
        """The value of the first of several names that is there, as it is."""
        self._read.update(names)
        return next((self._data[n] for n in names if self._data.get(n) is not None), None)

    def text(self, name: str, default: str | None = None) -> str | None:
        found = self.value(name)
        if found is None:
            return default
        if not isinstance(found, str):
            raise self.wrong(name, f"must be a string, it is {kind(found)}")
        return found

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        found = self.text(name)
        if found is None:
            return default
        if found not in choices:
            raise self.wrong(name, f"must be one of {', '.join(choices)}, it is {found[:40]!r}")
        return found

    def flag(self, *names: str, default: bool = False) -> bool:
        found = self.value(*names)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.wrong(names[0], f"must be true or false, it is {kind(found)}")
        return found

    def integer(
        self, *names: str, least: int = -LARGEST, most: int = LARGEST, default: int | None = None
    ) -> int | None:
        found = self.value(*names)
        if found is None:
            return default
        name = self._name(names)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, bool) or not isinstance(found, int):
            raise self.wrong(name, f"must be a whole number, it is {kind(found)}")
        if not least <= found <= most:
            raise self.wrong(name, f"must be from {least} to {most}, it is {found}")
        return found

    def number(self, *names: str, least: float = -math.inf, most: float = math.inf) -> float | None:
        found = self.value(*names)
        if found is None:
            return None
        name = self._name(names)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.wrong(name, f"must be a number, it is {kind(found)}")
        if not least <= found <= most or abs(found) > 1e300:
            raise self.wrong(name, f"must be from {least:g} to {most:g}, it is {found}"[:200])
        return float(found)

    def items(self, name: str) -> list[Any] | None:
        found = self.value(name)
        if found is not None and not isinstance(found, list):
            raise self.wrong(name, f"must be an array, it is {kind(found)}")
        return found

    def object(self, name: str) -> Fields | None:
        found = self.value(name)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self.wrong(name, f"must be an object, it is {kind(found)}")
        return Fields(found, f"{self._path}{name}.")

    def names(self) -> Iterable[str]:
        return self._data.keys()

    def strangers(self, harmless: Iterable[str] = ()) -> list[str]:
        """Fields that nobody has read and that are not known to be ``harmless``."""
        known = self._read.union(harmless)
        return sorted(name[:80] for name in self._data if name not in known)

    def wrong(self, name: str, problem: str) -> ApiError:
        """The error that says what is wrong with a field."""
        return bad(f"`{self._path}{name}` {problem}", f"{self._path}{name}")

    def _name(self, names: Sequence[str]) -> str:
        """The one of several names that was used."""
        return next((n for n in names if self._data.get(n) is not None), names[0])


KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
}


def kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    return KINDS.get(type(value), "null")
