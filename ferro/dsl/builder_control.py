"""Builder: loops, branches and ordered walks. Bodies are given as Python callables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ferro.dsl.builder_core import Operand, plain
from ferro.dsl.builder_reduce import Reductions
from ferro.dsl.ir import Block, Value, walk
from ferro.dsl.static import Static
from ferro.dsl.types import TileType, i32

Values = Sequence[Value]

_NOT_IN_RULE = {"load", "store", "load_block", "store_block", "breakpoint", "walk"}


class Control(Reductions):
    """``for_``, ``if_``, ``walk`` and ``breakpoint``."""

    def for_(
        self,
        start: Operand,
        stop: Operand,
        step: Operand,
        init: Values,
        body: Callable[[Value, tuple[Value, ...]], Values],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """A counted loop. ``body(counter, carried)`` builds it and returns the next carried values.

        ``names`` are the DSL names of the carried values, for messages. Raises CompileError when
        a carried value changes its type.
        """
        bounds = [self._bound(w, b) for w, b in zip(_BOUNDS, (start, stop, step), strict=True)]
        called = dict(enumerate(names))
        carried = [Value(v.type, called.get(n, v.name)) for n, v in enumerate(init)]
        block = Block([Value(TileType(i32)), *carried])
        with self.inside(block):
            block.results = list(body(block.params[0], tuple(block.params[1:])))
        for n, (old, new) in enumerate(zip(init, block.results, strict=True)):
            if old.type != new.type:
                self.fail(
                    "FER401",
                    f"`{called.get(n, old.name)}` changes its type in the loop",
                    f"before: {old.type!r}",
                    f"after one turn: {new.type!r}",
                    help="give it its final shape and dtype before the loop (`tl.zeros`)",
                )
        return self.emit("for", [*bounds, *init], [v.type for v in init], [block])

    def if_(
        self,
        cond: Value,
        then: Callable[[], Values],
        otherwise: Callable[[], Values] = tuple,
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """A branch on a bool scalar; both sides return values of the same types."""
        blocks = [Block(), Block()]
        for block, build in zip(blocks, (then, otherwise), strict=True):
            with self.inside(block):
                block.results = list(build())
        return self.if_blocks(cond, blocks[0], blocks[1], names)

    def if_blocks(
        self, cond: Value, then: Block, otherwise: Block, names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """A branch over blocks that are already built."""
        test = self.mask("a condition", cond)
        if test.type.rank:
            self.fail(
                "FER402",
                "a condition must be a scalar",
                f"got: {test.type!r}",
                help="use `tl.where` to choose element by element",
            )
        self._check_branches(then.results, otherwise.results, names)
        return self.emit("if", [test], [v.type for v in then.results], [then, otherwise])

    def walk(
        self,
        n: Operand,
        size: int | Static,
        body: Callable[[Value, Value], tuple[Values, Value | None]],
        rule: Callable[[Values, Values], Values],
        empty: Sequence[Operand],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """An ordered walk over 0..n in chunks of ``size``.

        ``body(start, stop)`` returns the chunk's values and its ``when`` (or None);
        ``rule(old, new)`` returns the merged values; ``empty`` holds a scalar for each value.
        """
        count = self._bound("the length of `tl.chunks`", n)
        block = Block([Value(TileType(i32), "start"), Value(TileType(i32), "stop")])
        with self.inside(block):
            values, when = body(block.params[0], block.params[1])
            if when is not None:
                self._check_when(when, values)
            block.results = [*values, *([when] if when is not None else [])]
        merge = self._rule(values, rule, names)
        starts = self._empties(values, empty)
        types = [v.type for v in values]
        blocks = [block, merge]
        length, mark = plain(size)
        return self.emit(
            "walk", [count, *starts], types, blocks, size=length, when=when is not None, **mark
        )

    def breakpoint(
        self,
        values: Values,
        names: Sequence[str],
        constants: Mapping[str, int | float | bool | str] | None = None,
        buffers: Mapping[str, str] | None = None,
        within: str = "",
    ) -> None:
        """A place in the function ``within`` where the interpreter stops on request and shows
        ``values``, constexprs, and the buffers that variables stand for."""
        attrs = {"constants": constants or {}, "buffers": buffers or {}}
        shown = {key: tuple(named.items()) for key, named in attrs.items()}
        self.emit("breakpoint", list(values), [], names=tuple(names), within=within, **shown)

    def _rule(
        self, values: Values, rule: Callable[[Values, Values], Values], names: Sequence[str]
    ) -> Block:
        old = [Value(v.type, "old") for v in values]
        new = [Value(v.type, "new") for v in values]
        block = Block([*old, *new])
        with self.inside(block):
            block.results = list(rule(old, new))
        if [r.type for r in block.results] != [v.type for v in values]:
            self.fail(
                "FER403",
                "the combine rule must return the types it was given",
                f"given: {[v.type for v in values]}",
                f"returned: {[r.type for r in block.results]}",
                help="a rule takes (old..., new...) and returns as many merged values",
            )
        if any(op.name in _NOT_IN_RULE for op in walk(block)):
            self.fail(
                "FER404",
                "a combine rule may only compute",
                help="load, store and walk outside of the rule",
            )
        return block

    def _empties(self, values: Values, empty: Sequence[Operand]) -> list[Value]:
        if len(empty) != len(values):
            self.fail(
                "FER405",
                f"`empty` has {len(empty)} scalars for {len(values)} values",
                help="give one scalar, or one for each combined value",
            )
        starts = []
        for value, scalar in zip(values, empty, strict=True):
            start = self.value(scalar, value.dtype)
            if start.dtype is not value.dtype or start.type.rank:
                self.fail(
                    "FER405",
                    "`empty` does not fit the combined value",
                    f"empty: {start.type!r}",
                    f"value: {value.type!r}",
                    help=f"give a scalar of {value.dtype}",
                )
            starts.append(self.broadcast(start, value.shape))
        return starts

    def _check_when(self, when: Value, values: Values) -> None:
        self.mask("`when`", when)
        for value in values:
            if when.shape != value.shape[: when.type.rank]:
                self.fail(
                    "FER406",
                    "the shape of `when` must begin the shape of every value",
                    f"when: {when.type!r}",
                    f"value: {value.type!r}",
                    help="`when` tells for each leading element whether the chunk counts",
                )

    def _check_branches(self, a: Values, b: Values, names: Sequence[str]) -> None:
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            if x.type != y.type:
                name = names[n] if n < len(names) else x.name
                self.fail(
                    "FER407",
                    f"`{name}` has different types after the two branches",
                    f"then: {x.type!r}",
                    f"else: {y.type!r}",
                    help="cast or broadcast in one branch",
                )

    def _bound(self, what: str, operand: Operand) -> Value:
        value = self.value(operand)
        if value.dtype is not i32 or value.type.rank:
            self.fail(
                "FER408",
                f"{what} must be an i32 scalar",
                f"got: {value.type!r}",
                help="a loop runs over numbers that are the same for the whole tile",
            )
        return value


_BOUNDS = ("the start of a range", "the stop of a range", "the step of a range")
