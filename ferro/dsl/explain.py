"""What a parse error means: unsupported Python is named, the rest says what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lark.exceptions import UnexpectedInput, UnexpectedToken

from ferro.dsl.diagnostics import Diagnostic
from ferro.dsl.types import Span

_Position = Callable[[int, int, int, int], Span]
_Meaning = tuple[str, str, str]  # code, message, help

_SUBSET = "kernels know assignments, `for`, `if`, calls and tile arithmetic"
_OPEN, _CLOSE = "([{", ")]}"

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


@dataclass(frozen=True)
class _Place:
    """Where reading stopped.

    ``token`` is the kind of the word there, ``accepts`` the kinds that could have followed,
    ``before`` the text of the statement up to here, ``open`` the innermost open bracket's place.
    """

    text: str
    offset: int
    word: str
    token: str
    accepts: frozenset[str]
    before: str
    open: int | None

    @property
    def bracket(self) -> str:
        return "" if self.open is None else self.text[self.open]

    @property
    def after(self) -> str:
        return self.text[self.offset : self.offset + 40]


def explain(error: UnexpectedInput, text: str, position: _Position) -> Diagnostic:
    """One diagnostic for what Lark could not read."""
    place = _place(error, text)
    at, width = place.offset, len(place.word) if place.word.strip() else 1
    if place.open is not None and _starts_statement(place):
        at, width = place.open, 1
        meaning = ("FER019", f"`{place.bracket}` is never closed", "close it, or remove it")
    else:
        meaning = _meaning(place)
    line, column = text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1
    code, message, help = meaning
    return Diagnostic(code, position(line, column, line, column + width), message, help)


def bad_dedent(text: str) -> tuple[int, int]:
    """Line and indentation of the first line that fits no enclosing block."""
    levels = [0]
    for number, line in enumerate(text.split("\n"), 1):
        width = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        while width < levels[-1]:
            levels.pop()
        if width > levels[-1]:
            if levels[-1] == 0 or text.split("\n")[number - 2].rstrip().endswith(":"):
                levels.append(width)
            else:
                return number, width
    return 1, 0


def _place(error: UnexpectedInput, text: str) -> _Place:
    offset = min(error.pos_in_stream or 0, len(text))
    token = error.token.type if isinstance(error, UnexpectedToken) else ""
    if token == "$END":
        offset = len(text.rstrip())
    if token == "_INDENT":
        offset += len(text[offset:]) - len(text[offset:].lstrip())
    match = re.compile(r"\w+|\*\*|:=|[^\w\s]|\s").match(text, offset)
    accepts = error.accepts if isinstance(error, UnexpectedToken) else error.allowed
    brackets = list(_open_brackets(text, offset))
    start = brackets[0] if brackets else offset
    line = text.rfind("\n", 0, start) + 1
    return _Place(
        text,
        offset,
        match.group() if match else "",
        token,
        frozenset(accepts or ()),
        text[line:offset].strip(),
        brackets[-1] if brackets else None,
    )


def _open_brackets(text: str, end: int) -> Iterator[int]:
    stack: list[int] = []
    pattern = re.compile(r"#[^\n]*|\"\"\"[\s\S]*?\"\"\"|\"[^\"\n]*\"|'[^'\n]*'|[()\[\]{}]")
    for match in pattern.finditer(text, 0, end):
        if match.group() in _OPEN:
            stack.append(match.start())
        elif match.group() in _CLOSE and stack:
            stack.pop()
    yield from stack


def _starts_statement(place: _Place) -> bool:
    """True where a new statement begins although a bracket is open, or the text ends."""
    if place.token == "$END" or not place.after.strip():
        return True
    first = place.text[place.text.rfind("\n", 0, place.offset) + 1 : place.offset]
    return "\n" in place.text[place.open : place.offset] and not first.strip()


def _meaning(place: _Place) -> _Meaning:
    if place.word in _WORDS and (place.word == "def" or not place.token):
        what, help = _WORDS[place.word]
        return ("FER001", f"{what} is not part of the kernel language", help)
    for rule in _RULES:
        found = rule(place)
        if found:
            return found
    return ("FER002", f"unexpected {_found(place)}", _expected(place))


def _brackets(place: _Place) -> _Meaning | None:
    if place.word == "for" and place.bracket:
        return (
            "FER005",
            "a comprehension is not part of the kernel language",
            "write the list out",
        )
    if place.word == ":=":
        return (
            "FER012",
            "`:=` is not part of the kernel language",
            "assign on a line of its own",
        )
    if place.bracket == "[" and (place.word == ":" or place.before.endswith(":")):
        return (
            "FER006",
            "only a whole axis `:` can be sliced",
            "tiles have no sub-ranges: load the part you need, or use `tl.split`",
        )
    if place.word == "{":
        return ("FER011", "a dict or set is not part of the kernel language", _SUBSET)
    if place.word in ("*", "**") and re.search(r"[(\[,=]$", place.before):
        return ("FER009", "star arguments are not part of the kernel language", "write them out")
    return None


def _strings(place: _Place) -> _Meaning | None:
    if place.word in ("'", '"') and re.search(r"\b[fFrRbB]{1,2}$", place.before):
        return (
            "FER013",
            "f-strings and other prefixed strings are not part of the kernel language",
            "use a plain string",
        )
    if place.word in ("'", '"'):
        return ("FER020", "a string is never closed", "close it on the same line")
    return None


def _assignments(place: _Place) -> _Meaning | None:
    if place.word == ":" and re.fullmatch(r"\w+", place.before):
        return (
            "FER010",
            "a variable cannot be annotated",
            "its type follows from its value: use `.to(...)` to set a dtype",
        )
    if not re.match(r"(\+|-|\*|//?|%|&|\||\^|<<|>>)?=(?!=)", place.after):
        return None
    if re.match(r"(if|elif|for|return)\b", place.before) or place.bracket:
        return (
            "FER008",
            "`=` where a value is expected",
            "compare with `==`; assign on a line of its own",
        )
    if re.search(r"[^=<>!]=[^=]", place.before + " "):
        return ("FER008", "one `=` in an assignment", "assign each variable on its own line")
    return (
        "FER007",
        "only names can be assigned",
        "use `tl.store(p[i], value)` to write memory",
    )


def _blocks(place: _Place) -> _Meaning | None:
    if re.match(r"for\b(?!.*\bin\b)", place.before) and place.word in (",", "[", "(", "."):
        return (
            "FER017",
            "a loop variable must be one name",
            "`for i in range(n)`, `for c in tl.chunks(n, SIZE)`",
        )
    if "COLON" in place.accepts and place.token == "_NEWLINE":
        return ("FER014", "a `:` is missing at the end of the line", "a block is opened by `:`")
    if "_INDENT" in place.accepts or (place.token == "$END" and place.before.endswith(":")):
        return (
            "FER015",
            "a block is empty or not indented",
            "indent its statements, or write `pass`",
        )
    if place.token == "_INDENT":
        return ("FER016", "unexpected indentation", "statements of a block start in one column")
    return None


def _commas(place: _Place) -> _Meaning | None:
    if (
        place.bracket
        and place.token in ("NAME", "NUMBER", "STRING")
        and "TRAILING" in place.accepts
    ):
        return ("FER021", f"a `,` is missing before `{place.word}`", "separate items by `,`")
    return None


_RULES = (_brackets, _strings, _assignments, _blocks, _commas)


def _found(place: _Place) -> str:
    if place.token in ("_NEWLINE", "_INDENT", "_DEDENT", "$END"):
        return _TOKENS[place.token].removeprefix("the ")
    return f"`{place.word}`" if place.word.strip() else "end of the line"


def _expected(place: _Place) -> str:
    words = [text for token, text in _TOKENS.items() if token in place.accepts]
    return f"expected {', '.join(words)}" if words else _SUBSET
