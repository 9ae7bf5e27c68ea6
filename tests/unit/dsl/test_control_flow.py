"""Random programs of loops and branches give what Python gives for the same text."""

from __future__ import annotations

import random
import textwrap

import numpy as np
import pytest

from ferro.dsl import tl
from ferro.dsl.interpreter import interpret
from ferro.dsl.kernel import KernelDefinition

VARIABLES = ("a", "b", "c", "d")
PROGRAMS = 30


class Writer:
    """Draws statements over four int variables, the parameter ``n`` and a constexpr ``C``.

    Numbers stay in 0..999, where the division of the language and of Python agree.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._loops = 0

    def program(self) -> str:
        start = [f"{v} = {self._random.randrange(9)}" for v in VARIABLES]
        return "\n".join([*start, *self._block(3, VARIABLES, 5)])

    def _block(self, depth: int, names: tuple[str, ...], length: int) -> list[str]:
        lines = []
        for _ in range(self._random.randint(1, length)):
            lines += self._statement(depth, names)
        return lines

    def _statement(self, depth: int, names: tuple[str, ...]) -> list[str]:
        kinds = ["assign", "assign", "augment"] + (["if", "if", "for", "unroll"] if depth else [])
        kind = self._random.choice(kinds)
        if kind == "assign":
            return [f"{self._random.choice(VARIABLES)} = {self._expression(names)}"]
        if kind == "augment":
            return [f"{self._random.choice(VARIABLES)} += {self._random.randrange(5)}"]
        if kind == "if":
            return self._branch(depth, names)
        self._loops += 1
        counter = f"i{self._loops}"
        stop = self._random.choice(["3", "n", "n + 1", "0", "C"])
        header = f"for {counter} in range({stop}):"
        if kind == "unroll":
            header = f"for {counter} in tl.static_range({self._random.randrange(4)}):"
        return [header, *self._nested(depth, (*names, counter))]

    def _branch(self, depth: int, names: tuple[str, ...]) -> list[str]:
        lines = [f"if {self._condition(names)}:", *self._nested(depth, names)]
        if self._random.random() < 0.3:
            lines += [f"elif {self._condition(names)}:", *self._nested(depth, names)]
        if self._random.random() < 0.5:
            lines += ["else:", *self._nested(depth, names)]
        return lines

    def _nested(self, depth: int, names: tuple[str, ...]) -> list[str]:
        return ["    " + line for line in self._block(depth - 1, names, 3)]

    def _condition(self, names: tuple[str, ...]) -> str:
        a, b = self._random.choice(names), self._random.choice([*names, "2", "C", "n"])
        test = f"{a} {self._random.choice(['<', '==', '!=', '>='])} {b}"
        if self._random.random() < 0.3:
            word = self._random.choice(["and", "or", "and not"])
            return f"{test} {word} ({self._random.choice(names)} > n)"
        return test

    def _expression(self, names: tuple[str, ...]) -> str:
        a, b = self._random.choice([*names, "n"]), self._random.choice([*names, "C", "7"])
        op = self._random.choice(["+", "*", "-", "max", "min", "//"])
        if op == "-":
            return f"abs({a} - {b})"
        if op in ("min", "max"):
            return f"{op}({a}, {b})"
        if op == "//":
            return f"{a} // ({b} + 1)"
        return f"({a} {op} {b}) % 1000"


class Python:
    """What ``tl`` is when the text runs as Python."""

    static_range = range


def by_python(text: str, n: int, c: int) -> list[int]:
    scope: dict[str, object] = {"tl": Python, "n": n, "C": c}
    exec(text, scope)
    return [int(scope[v]) for v in VARIABLES]  # type: ignore[call-overload]


def by_kernel(text: str, n: int, c: int) -> list[int]:
    stores = "\n".join(f"tl.store(y[{i}], {v})" for i, v in enumerate(VARIABLES))
    source = (
        "def f(y: tl.out[i32, 4], n: tl.i32[0, 9], C: tl.const):\n"
        + textwrap.indent(f"{text}\n{stores}\n", "    ")
    )  # fmt: skip
    kernel = KernelDefinition.from_source(source, "drawn.py", {"tl": tl}).specialise(C=c)
    y = np.zeros(4, np.int32)
    interpret(kernel, {"y": y}, {"n": n}, (1,))
    return y.tolist()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_drawn_programs(seed: int) -> None:
    text = Writer(seed).program()
    for n, c in ((0, 1), (2, 3)):
        assert by_kernel(text, n, c) == by_python(text, n, c), text
