"""Fields of the protocol as values: each reads itself from a request, and tells its JSON schema.

A body's table of them is what validates a request and what ``/openapi.json`` says of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ferro.serve.fields import LARGEST, Fields

Schema = dict[str, Any]


@dataclass(frozen=True)
class Parameter(ABC):
    """A field of a request. ``names`` are what it may be called, of which the first that is there
    counts; a field that is null counts as one that is missing."""

    names: tuple[str, ...]
    required: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        return self.names[0]

    @abstractmethod
    def read(self, fields: Fields) -> Any:
        """The field's value, None or the usual one if it is missing. Raises ApiError."""

    @abstractmethod
    def schema(self) -> Schema:
        """What the field may be, but for null."""


@dataclass(frozen=True)
class Real(Parameter):
    """A number from ``least`` to ``most``."""

    least: float = -math.inf
    most: float = math.inf

    def read(self, fields: Fields) -> float | None:
        return fields.number(*self.names, least=self.least, most=self.most)

    def schema(self) -> Schema:
        return {"type": "number", **_limits(self.least, self.most)}


@dataclass(frozen=True)
class Whole(Parameter):
    """A whole number from ``least`` to ``most``."""

    least: int = -LARGEST
    most: int = LARGEST

    def read(self, fields: Fields) -> int | None:
        return fields.integer(*self.names, least=self.least, most=self.most)

    def schema(self) -> Schema:
        return {"type": "integer", **_limits(self.least, self.most)}


@dataclass(frozen=True)
class Flag(Parameter):
    """True or false."""

    usual: bool = False

    def read(self, fields: Fields, usual: bool | None = None) -> bool:
        return fields.flag(*self.names, default=self.usual if usual is None else usual)

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(Parameter):
    """A string, of some ``choices`` if there are any."""

    choices: tuple[str, ...] = ()

    def read(self, fields: Fields) -> str | None:
        if self.choices and self.name in fields:
            return fields.choice(self.name, self.choices, "")
        return fields.text(self.name)

    def schema(self) -> Schema:
        return {"type": "string", **({"enum": list(self.choices)} if self.choices else {})}


@dataclass(frozen=True)
class Items(Parameter):
    """An array, whose items the reader checks by the schema ``of``."""

    of: Mapping[str, Any] = field(default_factory=dict)
    least: int = 0

    def read(self, fields: Fields) -> list[Any] | None:
        return fields.items(self.name)

    def schema(self) -> Schema:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": dict(self.of), **least}


@dataclass(frozen=True)
class Object(Parameter):
    """An object with the fields ``of``."""

    of: tuple[Parameter, ...] = ()

    def read(self, fields: Fields) -> Fields | None:
        return fields.object(self.name)

    def schema(self) -> Schema:
        return body(self.of)


@dataclass(frozen=True)
class Free(Parameter):
    """What can be of several kinds, which the reader tells apart as the schema ``like`` says."""

    like: Mapping[str, Any] = field(default_factory=dict)

    def read(self, fields: Fields) -> Any:
        return fields.value(*self.names)

    def schema(self) -> Schema:
        return dict(self.like)


def check(fields: Fields, parameters: Sequence[Parameter]) -> None:
    """Raises ApiError for fields of a wrong kind, by every name, whether or not what else is asked
    for makes use of them."""
    for parameter in parameters:
        for name in parameter.names:
            replace(parameter, names=(name,)).read(fields)


def body(parameters: Sequence[Parameter]) -> Schema:
    """The schema of an object with these fields, and of any others."""
    found: Schema = {"type": "object", "properties": {}}
    for parameter in parameters:
        for name in parameter.names:
            made = parameter.schema()
            found["properties"][name] = made if parameter.required else _or_null(made)
    needed = [parameter.name for parameter in parameters if parameter.required]
    return {**found, **({"required": needed} if needed else {})}


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else {}


def _limits(least: float, most: float) -> Schema:
    lower = {"minimum": least} if least > -math.inf else {}
    return {**lower, **({"maximum": most} if most < math.inf else {})}
