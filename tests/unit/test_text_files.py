"""Records out of files: what is a text, and what is told of the rest."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.commands import UsageError, text_files
from ferro.commands.text_files import Columns, Record


def read(kind: str, data: bytes, **columns: str) -> list[Record]:
    return list(text_files.FORMATS[kind](io.BytesIO(data), Columns(**columns)))


def texts(records: Sequence[Record]) -> list[str]:
    return [(record.wrong and f"! {record.wrong}") or record.text for record in records]


def test_lines() -> None:
    found = read("lines", b"one\r\ntwo\n\nthree\xff\nlast")
    assert texts(found) == ["one", "two", "", "! no UTF-8 at byte 5", "last"]


def test_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LONGEST", 8)
    found = read("lines", b"12345678901234567890123\nshort\n")
    assert [bool(record.wrong) for record in found] == [True, False]


def test_jsonl() -> None:
    data = b'"a"\n{"content": "b"}\n{"text": 5}\n[]\n{\n\n{"text": "\\ud800"}\n' + b"[" * 99999
    first, second, *bad = read("jsonl", data)
    assert (first.text, second.text) == ("a", "b")
    assert len(bad) == 5 and all(record.wrong for record in bad)


def test_a_field_and_a_title_by_name() -> None:
    data = b'{"t": "a", "head": "h"}\n{"text": "b"}\n'
    found = read("jsonl", data, text="t", title="head")
    assert found[0] == Record("a", title="h")
    assert found[1].wrong == "no field t"


def test_csv() -> None:
    found = read("csv", b'id,text\n1,"a, b"\n2\n3,"two\nlines"\n')
    assert texts(found) == ["a, b", "! 1 fields instead of 2", "two\nlines"]


@pytest.mark.parametrize("kind", ["lines", "jsonl", "csv"])
def test_the_mark_of_utf_8_is_no_text(kind: str) -> None:
    data = {"lines": b"a", "jsonl": b'"a"', "csv": b"text,n\na,1"}[kind]
    assert texts(read(kind, b"\xef\xbb\xbf" + data)) == ["a"]


def test_a_quote_that_never_closes_is_told_of() -> None:
    assert texts(read("csv", b'text\na\n"b\nc\nd\n')) == ["a", "! no CSV: unexpected end of data"]


@pytest.mark.parametrize(
    ("data", "columns", "said"),
    [
        (b'"text\n1\n', {}, "no CSV"),
        (b"a,b\n1,2\n", {}, "--column (there are: a, b)"),
        (b"a,b\n1,2\n", {"text": "c"}, "no column `c`"),
        (b"", {}, "there are: none"),
    ],
)
def test_a_column_that_is_not_there(data: bytes, columns: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read("csv", data, **columns)
    assert said in str(caught.value)


def test_parquet() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"n": [1, 2], "text": ["a", None]}), file)
    found = read("parquet", file.getvalue())
    assert found[0].text == "a" and found[1].wrong
    letters = pyarrow.array(["ab", "cd"]).buffers()[1]
    strange = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, letters, pyarrow.py_buffer(b"\xff\xffcd")]
    )
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": strange}), file)
    assert texts(read("parquet", file.getvalue())) == ["! no UTF-8 at byte 0", "cd"]
    with pytest.raises(UsageError, match="no Parquet"):
        read("parquet", b"PAR1 and no more")


@given(st.sampled_from(["lines", "jsonl", "csv"]), st.binary(max_size=300))
def test_any_bytes_give_records_or_a_usage_error(kind: str, data: bytes) -> None:
    try:
        found = read(kind, data)
    except UsageError:
        return
    assert all(isinstance(record.text.encode(), bytes) for record in found)
