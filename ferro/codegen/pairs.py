"""Pass: int8 dots that share an operand are computed side by side.

Two products of one activation tile by different weights in one loop over k load that tile once and
keep twice as many sums in flight: a dot instruction's result takes as long as about ten of them.
"""

from __future__ import annotations

from dataclasses import replace

from ferro.codegen.inline import ROOTS
from ferro.dsl.ir import Block, Kernel, Op, Value

_STAYS = ROOTS | {"load", "load_block", "breakpoint"}


def side_by_side(kernel: Kernel) -> Kernel:
    """The kernel with such dots in ``attrs["with"]`` of the first, which are marked "joined"."""
    return replace(kernel, body=_block(kernel.body))


def _block(block: Block) -> Block:
    ops = [replace(op, blocks=tuple(_block(b) for b in op.blocks)) for op in block.ops]
    at = 0
    while at < len(ops):
        if ops[at].name == "dot_i8" and not ops[at].attrs.get("joined"):
            ops = _joined(ops, at)
        at += 1
    return Block(block.params, ops, block.results)


def _joined(ops: list[Op], first: int) -> list[Op]:
    """``ops`` with every dot that can go along with ``ops[first]`` marked, and what these need
    moved in front of it."""
    dot = ops[first]
    before, after, along = ops[:first], ops[first + 1 :], []
    rest: list[Op] = []
    for op in after:
        partner = (
            op.name == "dot_i8" and op.args[0] is dot.args[0] and op.result.type == dot.result.type
        )
        needed = _needed(op, rest) if partner else None
        if needed is None or any(dot.result in o.args for o in needed):
            rest.append(op)
            continue
        before += needed
        rest = [o for o in rest if o not in needed]
        along.append(replace(op, attrs={**op.attrs, "joined": True}))
        rest.append(along[-1])
    if along:
        dot = replace(dot, attrs={**dot.attrs, "with": tuple(along)})
    return [*before, dot, *rest]


def _needed(op: Op, between: list[Op]) -> list[Op] | None:
    """What of ``between`` must come before ``op``, in order; None where something must stay."""
    wanted: set[Value] = set(op.args)
    needed: list[Op] = []
    for other in reversed(between):
        if wanted.isdisjoint(other.results):
            continue
        if other.name in _STAYS:
            return None
        wanted.update(other.args)
        needed.insert(0, other)
    return needed
