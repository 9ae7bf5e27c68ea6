"""Why a program was built: what differs from the nearest one that had been built before.

Compares key parts of the program cache, as `ferro.runtime.keys` makes them. Owns the wording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Parts = Mapping[str, str]

# Parts that are JSON objects: their fields are compared one by one.
OBJECTS = ("target", "config")
# Only the programs of one device are compared, so a part of its name is no change.
SAME_DEVICE = "device"

NAMES = {
    "kernel": "the kernel itself (its source, a constexpr of meaning, or which buffers there are)",
    "codegen": "code generator's version",
    "templates": "the code generator's templates",
    "options": "compiler options",
    "platform": "platform's version",
    "driver": "driver's version",
    "processor": "the processor",
}
HASHED = ("kernel", "templates", "processor")


@dataclass(frozen=True)
class Change:
    """One part of the key, such as "driver" or "config BM", with both its values."""

    part: str
    old: str
    new: str

    def __str__(self) -> str:
        name = NAMES.get(self.part, self.part)
        return name if self.part in HASHED else f"{name}: {self.old} -> {self.new}"


def changes(old: Parts, new: Parts) -> list[Change]:
    """What differs, field by field."""
    before, after = dict(_fields(old)), dict(_fields(new))
    names = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    found = [Change(n, before.get(n, "none"), after.get(n, "none")) for n in names]
    # Other tile sizes make another kernel by themselves.
    scheduled = any(change.part.startswith("config ") for change in found)
    return [change for change in found if not (scheduled and change.part == "kernel")]


def nearest(parts: Parts, earlier: Sequence[Parts]) -> Parts | None:
    """Of the programs built before (oldest first) the one to compare with: on the same device, for
    the same target if there is one, with the fewest changes, the newest of several."""
    same = [other for other in earlier if other.get(SAME_DEVICE) == parts.get(SAME_DEVICE)]
    aimed = [other for other in same if other.get("target") == parts.get("target")]
    return min(reversed(aimed or same), key=lambda o: len(changes(o, parts)), default=None)


def reason(parts: Parts, earlier: Sequence[Parts]) -> tuple[str, list[Change]]:
    """Why a program was built after those, in words, and the changes one by one."""
    other = nearest(parts, earlier)
    if other is None:
        return ("never built for this device before" if earlier else "never built before"), []
    found = changes(other, parts)
    if not found:
        return "built again with the same key", []
    return "; ".join(map(str, found)), found


def _fields(parts: Parts) -> Iterator[tuple[str, str]]:
    for name, text in parts.items():
        if name in OBJECTS and (data := _object(text)) is not None:
            yield from _flat(name, data)
        else:
            yield name, text or "none"


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _flat(prefix: str, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of an object; those of a constexpr table by the constexpr's own name."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _flat(prefix, value)
        elif isinstance(value, list):
            yield f"{prefix} {name}", " ".join(map(str, value)) or "none"
        else:
            yield f"{prefix} {name}", "default" if value is None else str(value)
