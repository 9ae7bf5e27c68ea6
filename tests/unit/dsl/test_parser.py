"""The grammar accepts a subset of Python and keeps positions."""

from __future__ import annotations

import ast as python
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ferro.dsl import ast
from ferro.dsl.diagnostics import CompileError
from ferro.dsl.parser import parse


def statements(text: str) -> tuple[ast.Stmt, ...]:
    lines = "\n".join("    " + line for line in text.split("\n"))
    return parse(f"def f(a, b, c):\n{lines}\n", "k.py").body


def expression(text: str) -> ast.Expr:
    (statement,) = statements(f"x = {text}")
    assert isinstance(statement, ast.Assign)
    return statement.value


def written(node: ast.Expr) -> str:
    """An expression with every bracket, in Python's syntax."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Literal(value=value):
            return repr(value)
        case ast.Slice(text=text):
            return text
        case ast.Unary(op=op, operand=operand):
            return f"({op} {written(operand)})"
        case ast.Binary(op=op, left=left, right=right):
            return f"({written(left)} {op} {written(right)})"
        case ast.Logical(op=op, operands=operands):
            return "(" + f" {op} ".join(map(written, operands)) + ")"
        case ast.Conditional(test=test, then=then, otherwise=otherwise):
            return f"({written(then)} if {written(test)} else {written(otherwise)})"
        case ast.Attribute(base=base, name=name):
            return f"{written(base)}.{name}"
        case ast.Subscript(base=base, items=items):
            return f"{written(base)}[{', '.join(map(written, items))}]"
        case ast.Call(function=function, args=args, keywords=keywords):
            given = [*map(written, args), *(f"{k.name}={written(k.value)}" for k in keywords)]
            return f"{written(function)}({', '.join(given)})"
        case ast.Sequence(items=items):
            return "(" + "".join(written(i) + ", " for i in items) + ")"
    raise AssertionError(node)


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c - a // b % c",
        "-a * +b - ~c",
        "a << b + c >> 2 & b | c ^ a",
        "a < b",
        "a is not None and not b is None or c == 'x'",
        "not a < b",
        "a if b else c if a else b",
        "a - b - c",
        "a / b / c",
        "-a ** -b",
        "a.b.c(a, b, k=c)[:, None](1)",
        "(a, b)",
        "(a,)",
        "((a))",
        "1.5e-3 + .5 + 2. + 0x1F + 0b101 + 1_000",
        "'a' 'b'",
        '"it\'s"',
        "a[..., None]",
        "a[b][c]",
        "f(a,)",
        "f(\n    a,  # first\n    b,\n)",
        "a \\\n    + b",
    ],
)
def test_expressions_group_as_in_python(text: str) -> None:
    mine = python.dump(python.parse(written(expression(text))))
    assert mine == python.dump(python.parse(text.strip()))


def test_statements_of_every_kind() -> None:
    body = statements(
        "x = 1\n"
        "a, b = f(x)\n"
        "(a, b) = x\n"
        "x += 2; x //= 3\n"
        "for i in range(3):\n"
        "    pass\n"
        "if a:\n"
        "    f(a)\n"
        "elif b:\n"
        "    pass\n"
        "else: x = 2\n"
        "return a, b"
    )
    names = [type(s).__name__ for s in body]
    assert names == [
        "Assign", "Assign", "Assign", "AugAssign", "AugAssign", "For", "If", "Return",
    ]  # fmt: skip
    branch = body[6]
    assert isinstance(branch, ast.If)
    (inner,) = branch.otherwise
    assert isinstance(inner, ast.If) and len(inner.otherwise) == 1


def test_comments_blank_lines_and_docstrings_are_no_statements() -> None:
    tree = parse(
        'def f(a):\n    """Says what.\n\n  Even so.\n    """\n\n    # why\n    x = a  # how\n\n\n',
        "k.py",
    )
    assert tree.docstring.startswith("Says what.")
    assert len(tree.body) == 1


def test_decorators_are_skipped_and_lines_counted_from_the_file() -> None:
    tree = parse("    @kernel\n    @mark(1, x=2)\n    def f(a):\n        x = a\n", "k.py", line=41)
    assert tree.name == "f"
    assert tree.span == tree.span.__class__("k.py", 43, 9, 43, 10)
    assert (tree.body[0].span.line, tree.body[0].span.column) == (44, 9)


def test_spans_cover_the_text_of_each_node() -> None:
    text = "def f(a, b):\n    x = (a + b) * tl.load(a[b, :], mask=b < 3)\n"
    line = text.split("\n")[1]

    def slices(node: ast.Node) -> list[str]:
        found = [line[node.span.column - 1 : node.span.end_column - 1]]
        return found + [s for c in ast.children(node) for s in slices(c)]

    found = slices(parse(text, "k.py").body[0])
    assert {"a + b", "tl.load(a[b, :], mask=b < 3)", "a[b, :]", "mask=b < 3", "b < 3", ":"} <= set(
        found
    )


def test_parameters_keep_annotation_and_default() -> None:
    text = "def f(x: tl.ptr[f32, M + 1], B: tl.const[1, 'a'] = -1, c=None):\n  pass"
    tree = parse(text, "k.py")
    x, size, c = tree.parameters
    assert isinstance(x.annotation, ast.Subscript) and x.default is None
    assert isinstance(size.default, ast.Unary)
    assert c.annotation is None and isinstance(c.default, ast.Literal)


@pytest.mark.parametrize(
    "name", ["iffy", "format", "is_in", "notable", "for_each", "orb", "_in", "pass_"]
)
def test_names_may_begin_with_a_keyword(name: str) -> None:
    assert written(expression(f"{name} + 1")) == f"({name} + 1)"


@pytest.mark.parametrize("text", ["x = 'a", "x = a b", "x = )", "x = $", "1 = x", "def = 3", "x ="])
def test_nonsense_is_a_compile_error(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        statements(text)
    assert caught.value.diagnostics[0].span.line == 2


def test_threads_parse_side_by_side() -> None:
    lines = "".join(f"    a{n} = ((b + [c][0]) * {n})\n" for n in range(40))
    texts = [f"def f{n}(b, c):\n{lines}    if b:\n        pass\n" for n in range(32)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda text: parse(text, "k.py"), texts))
    finally:
        sys.setswitchinterval(interval)
    assert found == [parse(text, "k.py") for text in texts]


@pytest.mark.parametrize("word", ["None", "True", "False", "²", "x²"])
@pytest.mark.parametrize(
    "text",
    [
        "def {}(a):\n    pass\n",
        "def f({}):\n    pass\n",
        "def f(a):\n    {} = a\n",
        "def f(a):\n    b, {} = a, a\n",
        "def f(a):\n    {} += a\n",
        "def f(a):\n    for {} in range(3):\n        pass\n",
        "def f(a):\n    g({}=a)\n",
    ],
)
def test_what_can_be_no_name_is_given_to_nothing(word: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(text.format(word), "k.py")
    (found,) = caught.value.diagnostics
    assert found.code == "FER002"
    assert found.message == f"`{word}` cannot be given as a name"
