"""Which tiles become arrays of registers and which are computed where they are used.

Expressions are pulled into the loop nest of the operation that needs them. A tile is *kept* (gets
an array of its own, at the place of its definition) when pulling it would repeat work or move a
read past a write: it has several consumers, is used in another block, or is read from a buffer
that the kernel also writes.
"""

from __future__ import annotations

from collections import defaultdict

from ferro.dsl.ir import Block, Kernel, Op, Value, walk

VIEWS = frozenset({"broadcast", "expand", "reshape", "transpose", "split"})
SOURCES = frozenset({"const", "arange", "partials", "scalar", "program_id"})
ROOTS = frozenset(
    {"store", "reduce", "dot", "dot_i8", "accumulate", "finish", "join", "for", "if", "walk"}
)
# Operations that may overwrite one of their operands, and which.
IN_PLACE = {"dot": 2, "accumulate": 0}
# Free on index tiles: affine forms, and comparisons of them with their conjunctions.
_INDEX = frozenset({"add", "sub", "mul", "neg", "shl", "lt", "le", "gt", "ge", "and"})
_PLAIN_OPERAND = frozenset({"load", "load_block", "cast", *VIEWS, *SOURCES})

# A consumer: the operation (or yield) and the block it sits in.
Consumer = tuple[object, Block]


class Plan:
    """``kept``: values with an array of their own. ``cheap``: free to recompute anywhere.
    ``used``: values that something needs. ``scales``: whether a product scales its operand at each
    use, which spares the registers of the whole tile (a work-item has few of them) and costs a
    multiplication; vectors of a CPU are better off with the tile."""

    def __init__(self, kernel: Kernel, scales: bool = False) -> None:
        self._scales = scales
        self.kept: set[Value] = set()
        self.cheap: set[Value] = set()
        self.used: set[Value] = set()
        self.defs: dict[Value, Op] = {}
        self.home: dict[Value, Block] = {}
        self._consumers: dict[Value, set[Consumer]] = defaultdict(set)
        self._wide: set[Value] = set()
        self._operands: set[Value] = set()
        self._elsewhere: set[Value] = set()
        self._written = {op.attrs["buffer"] for op in walk(kernel.body) if op.name == "store"}
        self._placed: list[tuple[Op, Block]] = []
        self._place(kernel.body)
        for op, _ in self._placed:
            self._mark_cheap(op)
        for op, block in reversed(self._placed):
            self._visit(op, block)

    def read_once(self, value: Value) -> bool:
        """True if exactly one operation reads ``value``, in the block where it is defined."""
        consumers = self._consumers[value]
        return len(consumers) == 1 and all(b is self.home.get(value) for _, b in consumers)

    def _place(self, block: Block) -> None:
        for param in block.params:
            self.home[param] = block
        for op in block.ops:
            self._placed.append((op, block))
            for result in op.results:
                self.defs[result] = op
                self.home[result] = block
            for inner in op.blocks:
                self._place(inner)
        self._elsewhere.update(block.results)
        for i, value in enumerate(block.results):
            self._consumers[value].add((("yield", id(block), i), block))
            self.used.add(value)

    def _mark_cheap(self, op: Op) -> None:
        index = op.name in _INDEX and not op.result.dtype.is_float
        if op.name in SOURCES or op.name in VIEWS or index:
            if all(a in self.cheap or (not a.shape and not a.dtype.is_float) for a in op.args):
                self.cheap.update(op.results)

    def _visit(self, op: Op, block: Block) -> None:
        if op.name in ROOTS:
            for i, arg in enumerate(op.args):
                self.used.add(arg)
                overwritten = i == IN_PLACE.get(op.name)  # no other operand may read it then
                self._consumers[arg].add((("old", id(op)) if overwritten else id(op), block))
                if op.name != "dot_i8":
                    self._elsewhere.add(arg)
            if op.name in ("dot", "dot_i8"):
                self._operands.update(op.args[:2])
            if op.attrs.get("kind") == "argmax":  # read twice
                self._consumers[op.args[0]].add(("again", block))
            self.kept.update(r for r in op.results if r.shape)
            return
        for result in op.results:
            if op.name not in VIEWS and self._keep(op, result, block):
                self.kept.add(result)
        needed = [r for r in op.results if r in self.used]
        if not needed and op.name != "breakpoint":
            return
        for arg in op.args:
            self.used.add(arg)
            for result in needed:
                own: set[Consumer] = {(id(result), block)}
                self._consumers[arg] |= own if result in self.kept else self._consumers[result]
                if op.name not in VIEWS or result in self._elsewhere:
                    self._elsewhere.add(arg)
                self._inherit(op, arg, result)

    def _inherit(self, op: Op, arg: Value, result: Value) -> None:
        stretched = op.name == "broadcast" and arg.shape and arg.shape != result.shape
        if result not in self.kept and (result in self._wide or stretched):
            self._wide.add(arg)
        if result in self._operands and self._plain(op) and result not in self.kept:
            self._operands.add(arg)

    def _plain(self, op: Op) -> bool:
        """True for what a product can read again and again: stored numbers, scaled or not."""
        if op.name == "mul":
            return self._scales and all(self._stored(arg) for arg in op.args)
        return op.name in _PLAIN_OPERAND

    def _stored(self, value: Value) -> bool:
        """True for a load behind casts and views."""
        op = self.defs.get(value)
        while op is not None and op.name in ("cast", *VIEWS):
            op = self.defs.get(op.args[0])
        return op is not None and op.name == "load"

    def _keep(self, op: Op, result: Value, block: Block) -> bool:
        if not result.shape or result in self.cheap or result not in self.used:
            return False
        if op.name == "load" and op.attrs["buffer"] in self._written:
            return True
        consumers = self._consumers[result]
        if any(home is not block for _, home in consumers):
            return True
        if len(consumers) > 1:
            # int8 words are read straight from the buffer, as often as products need them
            return result in self._elsewhere or op.name != "load" or op.attrs["masked"]
        if result in self._operands:
            return not self._plain(op)
        return result in self._wide and op.name in ("load", "load_block", "call")
