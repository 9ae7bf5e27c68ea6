"""Extent expressions: arithmetic, text, simplification, dimensions from shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferro.dsl.extents import (
    OPERATORS,
    Measure,
    cdiv,
    const,
    evaluate,
    from_schedule,
    name,
    names,
    remainder,
    simplify,
    solve,
    substitute,
    text,
    truncate,
)
from ferro.dsl.ir import Extent

K, N = name("K"), name("N")
leaves = st.one_of(st.integers(-9, 9).map(const), st.sampled_from(["K", "N"]).map(name))
expressions = st.recursive(
    leaves, lambda e: st.tuples(st.sampled_from(sorted(OPERATORS)), e, e), max_leaves=8
)
small = st.integers(-20, 20)


def in_python(extent: Extent, values: dict[str, int]) -> int:
    scope = {"cdiv": cdiv, "min": min, "max": max, **values}
    return eval(text(extent), scope)


@pytest.mark.parametrize(
    ("a", "b", "quotient", "rest"),
    [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1), (5, 0, 0, 0)],
)
def test_division_truncates(a: int, b: int, quotient: int, rest: int) -> None:
    assert (truncate(a, b), remainder(a, b)) == (quotient, rest)


def test_cdiv_rounds_up() -> None:
    assert [cdiv(n, 32) for n in (0, 1, 32, 33)] == [0, 1, 1, 2]


@given(expressions, small, small)
def test_simplified_and_substituted_extents_keep_their_value(e: Extent, k: int, n: int) -> None:
    values = {"K": k, "N": n}
    assert evaluate(simplify(e), values) == evaluate(e, values)
    assert substitute(e, values) == const(evaluate(e, values))


@given(expressions, st.integers(0, 20), st.integers(1, 20))
def test_text_reads_back_as_the_same_expression(e: Extent, k: int, n: int) -> None:
    values = {"K": k, "N": n}
    if "//" not in text(e) and "%" not in text(e):  # Python's own division rounds down
        assert in_python(e, values) == evaluate(e, values)


def test_text_has_the_fewest_brackets() -> None:
    assert text(("*", ("+", K, const(1)), N)) == "(K + 1) * N"
    assert text(("-", K, ("-", N, const(1)))) == "K - (N - 1)"
    assert text(("cdiv", K, const(32))) == "cdiv(K, 32)"


def test_names_come_in_order() -> None:
    assert list(names(("*", ("+", N, K), N))) == ["N", "K", "N"]


def test_unknown_name() -> None:
    with pytest.raises(KeyError, match="K"):
        evaluate(("+", K, const(1)), {})


def test_schedule_marks_survive_folding() -> None:
    folded = simplify(("//", const(64, schedule=True), const(4)))
    assert folded == const(16, schedule=True)
    assert from_schedule(("cdiv", K, folded))
    assert not from_schedule(("cdiv", K, const(16)))


def test_rounding_up_is_recognised() -> None:
    assert simplify(("//", ("+", K, const(31)), const(32))) == ("cdiv", K, const(32))


def test_dimensions_are_read_off_bare_extents_wherever_they_come() -> None:
    measures = [
        Measure(("+", K, const(1)), 6, "axis 0 of `a`"),
        Measure(K, 5, "axis 0 of `b`"),
        Measure(N, 0, "axis 1 of `b`"),
    ]
    solution = solve(measures, {})
    assert solution.values == {"K": 5, "N": 0}
    assert solution.sources["K"] == "axis 0 of `b`"
    assert not solution.conflicts
    assert not solution.unsolved


def test_conflict_names_both_sides() -> None:
    solution = solve([Measure(K, 5, "here"), Measure(("*", K, N), 11, "there")], {"N": (2, "n")})
    (conflict,) = solution.conflicts
    assert conflict.expected == 10
    assert conflict.measure.source == "there"
    assert conflict.reasons == (("K", 5, "here"), ("N", 2, "n"))


def test_a_name_without_a_bare_extent_is_unsolved() -> None:
    assert solve([Measure(("*", K, const(2)), 8, "x")], {}).unsolved == ("K",)
