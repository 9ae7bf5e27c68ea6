"""Programs as JSON, for files and child processes."""

from __future__ import annotations

from typing import Any

from ferro.codegen.program import Argument, Config, Entry, Program, Target
from ferro.dsl.ir import Extent


def to_json(program: Program) -> dict[str, Any]:
    return {
        "source": program.source,
        "options": list(program.options),
        "entries": [_entry_to_json(entry) for entry in program.entries],
        "target": target_to_json(program.target),
        "config": config_to_json(program.config),
    }


def from_json(data: dict[str, Any]) -> Program:
    """The inverse of ``to_json``. Raises KeyError if something is missing."""
    return Program(
        source=data["source"],
        options=tuple(data["options"]),
        entries=tuple(_entry_from_json(entry) for entry in data["entries"]),
        target=target_from_json(data["target"]),
        config=config_from_json(data["config"]),
    )


def target_to_json(target: Target) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "lanes": target.lanes,
        "dot": target.dot,
        "abi": target.abi,
        "features": sorted(target.features),
    }


def target_from_json(data: dict[str, Any]) -> Target:
    return Target(**{**data, "features": frozenset(data["features"])})


def config_to_json(config: Config) -> dict[str, Any]:
    return {
        "constants": dict(sorted(config.constants.items())),
        "lanes": config.lanes,
        "lane_axis": list(config.lane_axis),
        "split": config.split,
        "dot": config.dot,
        "prefetch": config.prefetch,
        "group": config.group,
    }


def config_from_json(data: dict[str, Any]) -> Config:
    return Config(**{**data, "lane_axis": tuple(data["lane_axis"])})


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    arguments = [[a.kind, a.name, a.dtype, a.bytes] for a in entry.arguments]
    return {
        "name": entry.name,
        "arguments": arguments,
        "groups": entry.groups,
        "local": entry.local,
    }


def _entry_from_json(data: dict[str, Any]) -> Entry:
    arguments = tuple(
        Argument(kind, name, dtype, _extent(size)) for kind, name, dtype, size in data["arguments"]
    )
    x, y, z = map(_extent, data["groups"])
    a, b, c = data["local"]
    return Entry(data["name"], arguments, (x, y, z), (a, b, c))


def _extent(data: Any) -> Extent:
    return tuple(_extent(item) if isinstance(item, list) else item for item in data)
