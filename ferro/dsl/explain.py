"""What a parse error means: unsupported Python is named, the rest says what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.types import Span

_Position = Callable[[int, int, int, int], Span]

_SUBSET = "kernels know assignments, `for`, `if`, calls and tile arithmetic"

# Python words that start something the language leaves out: what it is, what to do instead.
_WORDS = {
    "while": ("a `while` loop", "use `for i in range(...)`: the number of turns must be known"),
    "break": ("`break`", "mask the work instead: a loop runs all of its turns"),
    "continue": ("`continue`", "use `if`, or a mask"),
    "try": ("`try`", "kernels raise nothing; use `tl.static_assert` for conditions of constexprs"),
    "except": ("`except`", "kernels raise nothing"),
    "finally": ("`finally`", "kernels raise nothing"),
    "raise": ("`raise`", "use `tl.static_assert(cond, message)`"),
    "assert": ("`assert`", "use `tl.static_assert(cond, message)`"),
    "lambda": ("`lambda`", "write a function under `@kernel`: it is inlined where it is called"),
    "with": ("`with`", _SUBSET),
    "import": ("an import inside of a kernel", "import at the top of the file"),
    "from": ("an import inside of a kernel", "import at the top of the file"),
    "class": ("a class inside of a kernel", _SUBSET),
    "def": ("a nested function", "define it outside under `@kernel`: calls are inlined"),
    "global": ("`global`", "pass what a kernel needs as a parameter"),
    "nonlocal": ("`nonlocal`", "pass what a kernel needs as a parameter"),
    "del": ("`del`", _SUBSET),
    "yield": ("`yield`", _SUBSET),
    "async": ("`async`", _SUBSET),
    "await": ("`await`", _SUBSET),
}

_EXAMPLES: dict[tuple[str, str, str], list[str]] = {
    ("FER005", "a comprehension is not part of the kernel language", "write the list out"): [
        "x = [a for a in b]",
        "x = f(a for a in b)",
        "x = (a for a in b)",
    ],
    (
        "FER006",
        "only a whole axis `:` can be sliced",
        "tiles have no sub-ranges: load the part you need, or use `tl.split`",
    ): ["x = a[1:2]", "x = a[1:]", "x = a[:2]", "x = a[::2]", "x = a[b, 0:4]"],
    ("FER007", "only names can be assigned", "use `tl.store(p[i], value)` to write memory"): [
        "a[0] = 1",
        "a[0] += 1",
        "a.b = 1",
        "f(a) = 1",
        "a, b[0] = 1, 2",
    ],
    ("FER008", "`=` where a value is expected", "compare with `==`; assign on a line of its own"): [
        "if a = 1:\n        pass",
        "x = y = 1",
        "x = (y = 1)",
    ],
    ("FER009", "star arguments are not part of the kernel language", "write them out"): [
        "f(*a)",
        "f(**a)",
        "x = [*a]",
        "x = *a",
    ],
    (
        "FER010",
        "a variable cannot be annotated",
        "its type follows from its value: use `.to(...)` to set a dtype",
    ): ["x: a = 1", "x: a"],
    ("FER011", "a dict or set is not part of the kernel language", _SUBSET): [
        "x = {}",
        "x = {a: b}",
    ],
    ("FER012", "`:=` is not part of the kernel language", "assign on a line of its own"): [
        "if (a := b):\n        pass",
        "x = (a := b)",
    ],
    ("FER013", "f-strings are not part of the kernel language", "use a plain string"): [
        'x = f"a"',
        'x = g(f"a")',
    ],
    ("FER014", "a `:` is missing at the end of the line", "a block is opened by `:`"): [
        "for a in b\n        pass",
        "if a\n        pass",
        "if a:\n        pass\n    else\n        pass",
    ],
    ("FER015", "a block is empty or not indented", "indent its statements, or write `pass`"): [
        "for a in b:\n    x = 1",
        "if a:\n    x = 1",
    ],
    ("FER016", "unexpected indentation", "statements of a block start in one column"): [
        "x = 1\n        y = 2",
    ],
    (
        "FER017",
        "a loop variable must be one name",
        "`for i in range(n)`, `for c in tl.chunks(n, SIZE)`",
    ): ["for a, b in c:\n        pass", "for a[0] in c:\n        pass"],
}

_TOKENS = {
    "_NEWLINE": "the end of the line",
    "_INDENT": "an indented block",
    "_DEDENT": "the end of the block",
    "$END": "the end of the function",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COLON": "`:`",
    "TRAILING": "`,`",
    "EQUAL": "`=`",
}


def explain(error: UnexpectedInput, text: str, position: _Position, grammar: Lark) -> Diagnostic:
    """One diagnostic for what Lark could not read."""
    pos = min(error.pos_in_stream or 0, max(len(text) - 1, 0))
    word = _word_at(text, pos)
    line, column = text.count("\n", 0, pos) + 1, pos - (text.rfind("\n", 0, pos) + 1) + 1
    width = len(word) if word.strip() else 1
    span = position(line, column, line, column + width)
    if word in _WORDS and isinstance(error, UnexpectedCharacters) or word == "def":
        what, help = _WORDS[word]
        return Diagnostic("FER001", span, f"{what} is not part of the kernel language", help)
    found = error.match_examples(grammar.parse, _texts(), use_accepts=True)
    if found:
        code, message, help = found
        return Diagnostic(code, span, message, help)
    return Diagnostic("FER002", span, f"unexpected {_token(error, word)}", _expected(error))


def _texts() -> dict[tuple[str, str, str], list[str]]:
    return {k: [f"def f(a, b, c):\n    {s}\n" for s in v] for k, v in _EXAMPLES.items()}


def _word_at(text: str, pos: int) -> str:
    match = re.compile(r"\w+|[^\w\s]|\s").match(text, pos)
    return match.group() if match else ""


def _token(error: UnexpectedInput, word: str) -> str:
    if isinstance(error, UnexpectedToken) and error.token.type in ("_NEWLINE", "_INDENT", "$END"):
        return _TOKENS[error.token.type]
    return f"`{word}`" if word.strip() else "end of the line"


def _expected(error: UnexpectedInput) -> str:
    wanted = error.accepts if isinstance(error, UnexpectedToken) else set()
    wanted = wanted or getattr(error, "allowed", None) or set()
    words = [text for token, text in _TOKENS.items() if token in wanted]
    return f"expected {', '.join(words)}" if words else _SUBSET
