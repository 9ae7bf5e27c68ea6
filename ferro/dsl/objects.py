"""What a name can stand for while a kernel is specialised, besides IR values and statics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ferro.dsl.ir import Pointer, Quantised, Value
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.language import Annotation, Builtin
from ferro.dsl.static import Static
from ferro.dsl.types import DType

# Value | Static | Pointer | Quantised | DType | tuple | None | Builtin | KernelDefinition | ...
Object = Any


@dataclass(frozen=True)
class Element:
    """``p[index...]``: a place in a buffer, for ``tl.load`` and ``tl.store``."""

    buffer: Pointer | Quantised
    index: tuple[Object, ...]


@dataclass(frozen=True)
class Chunk:
    """The variable of a ``tl.chunks`` loop."""

    start: Value
    stop: Value


@dataclass(frozen=True)
class Undefined:
    """A variable that has no value here, and why."""

    reason: str
    help: str


class Poison:
    """What an erroneous expression gives: using it raises ``Poisoned`` and reports nothing."""


class Poisoned(Exception):
    """Raised through an expression that uses a variable whose computation already failed."""


POISON: Final = Poison()


def kind(thing: Object) -> str:
    """How a message calls an object."""
    match thing:
        case Value():
            return f"a tile {thing.type!r}" if thing.shape else f"a scalar {thing.type!r}"
        case Static(value=value):
            return f"the {_CONSTANTS[type(value)]} {value!r}"
        case Pointer() | Quantised():
            return f"the buffer `{thing.name}`"
        case Element():
            return f"an element of the buffer `{thing.buffer.name}`"
        case Chunk():
            return "a chunk"
        case DType():
            return f"the dtype {thing}"
        case tuple():
            return f"a list of {len(thing)}"
        case None:
            return "None"
        case Builtin():
            return f"the function `{thing.signature}`"
        case KernelDefinition():
            return f"the kernel `{thing.name}`"
        case Annotation():
            return f"the annotation `tl.{thing.kind}`"
    return f"a Python {type(thing).__name__}"


_CONSTANTS: dict[type, str] = {int: "int", float: "float", bool: "bool", str: "string"}
