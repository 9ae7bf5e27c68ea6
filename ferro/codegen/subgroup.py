"""Work-groups that are one sub-group: its block reads and broadcasts, on targets that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferro.codegen.dialect import Ex
from ferro.codegen.poly import ZERO, Poly
from ferro.codegen.program import Target
from ferro.dsl.ir import Value

if TYPE_CHECKING:
    from ferro.codegen.emit import Array, Emitter

FEATURE = "block_read"
LANES = 16  # the width that the feature's probe tries
_BROADCAST = frozenset({"f32", "i32", "u32"})


def possible(kind: str, lanes: int) -> bool:
    """True if programs of this shape can be one sub-group."""
    return kind == "simt" and lanes == LANES


def has_sub_group(target: Target) -> bool:
    """True if every work-group is one sub-group."""
    return FEATURE in target.features and possible(target.kind, target.lanes)


def broadcast(e: Emitter, value: Value, array: Array, index: tuple[Poly, ...]) -> Ex | None:
    """One element of a tile on the lanes, for all lanes; None where that needs local memory."""
    lane = array.lane
    if lane is None or array.registers[lane] > 1 or value.dtype.name not in _BROADCAST:
        return None
    if not has_sub_group(e.dialect.target):
        return None
    source = e.element(array, (*index[:lane], ZERO, *index[lane + 1 :]))
    return Ex(e.template("broadcast", x=source, lane=index[lane]), value.dtype)
