"""Removes operations whose results nobody uses."""

from __future__ import annotations

from ferro.dsl.ir import Block, Op

_EFFECTS = {"store", "store_block", "breakpoint"}


def remove_unused(block: Block) -> None:
    """Drop pure operations, loads, loops and walks without effect whose results are not used."""
    _prune(block, {v.id for v in block.results})


def _prune(block: Block, used: set[int]) -> None:
    kept: list[Op] = []
    for op in reversed(block.ops):
        if not _needed(op, used):
            continue
        for inner in op.blocks:
            used.update(v.id for v in inner.results)
            _prune(inner, used)
        used.update(a.id for a in op.args)
        kept.append(op)
    block.ops[:] = reversed(kept)


def _needed(op: Op, used: set[int]) -> bool:
    return _has_effect(op) or any(r.id in used for r in op.results) or op.name == "scalar"


def _has_effect(op: Op) -> bool:
    return op.name in _EFFECTS or any(_has_effect(o) for b in op.blocks for o in b.ops)
