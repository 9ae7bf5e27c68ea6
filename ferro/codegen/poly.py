"""Integer polynomials over C identifiers: the form in which index arithmetic is tracked.

``row * K + k0 + 16 * i0`` stays symbolic, so that strides that are constants, zeros and multiples
of the lane count are seen, and is printed as C only where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

_UNSIGNED = "(uint)"
Monomial = tuple[str, ...]
PolyLike = Union["Poly", int, str]


@dataclass(frozen=True)
class Poly:
    """A sum of integer multiples of products of names; the empty product is the constant.

    Values are those of i32 arithmetic, so that coefficients are kept within its range.
    """

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(x: PolyLike) -> Poly:
        if isinstance(x, Poly):
            return x
        if isinstance(x, int):
            return Poly._from({(): x})
        return Poly((((x,), 1),))

    @staticmethod
    def wrapping(name: str) -> Poly:
        """A name whose sums and products may leave i32: C computes with it unsigned."""
        return Poly.of(_UNSIGNED + name)

    @staticmethod
    def _from(terms: dict[Monomial, int]) -> Poly:
        wrapped = ((m, (c + 2**31) % 2**32 - 2**31) for m, c in terms.items())
        return Poly(tuple(sorted((m, c) for m, c in wrapped if c)))

    def __add__(self, other: PolyLike) -> Poly:
        terms = dict(self.terms)
        for m, c in Poly.of(other).terms:
            terms[m] = terms.get(m, 0) + c
        return Poly._from(terms)

    def __mul__(self, other: PolyLike) -> Poly:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in Poly.of(other).terms:
                key = tuple(sorted(m + n))
                terms[key] = terms.get(key, 0) + c * d
        return Poly._from(terms)

    def __sub__(self, other: PolyLike) -> Poly:
        return self + Poly.of(other) * -1

    @property
    def constant(self) -> int | None:
        """The value if it is known now, else None."""
        if not self.terms:
            return 0
        (m, c), *rest = self.terms
        return c if not rest and m == () else None

    @property
    def wraps(self) -> bool:
        """True if the value may be one that wrapped around; a name alone is just its value."""
        return not self._lone and any(n.startswith(_UNSIGNED) for m, _ in self.terms for n in m)

    @property
    def _lone(self) -> bool:
        return len(self.terms) == 1 and len(self.terms[0][0]) == 1 and self.terms[0][1] == 1

    @property
    def factors(self) -> int:
        """How many names and numbers it is written with."""
        return sum(len(m) + 1 for m, _ in self.terms)

    def is_zero(self) -> bool:
        return not self.terms

    def divisible(self, n: int) -> bool:
        """True if every coefficient is a multiple of ``n`` (so the value is, for any names)."""
        return all(c % n == 0 for _, c in self.terms)

    def divide(self, n: int) -> Poly:
        """Exact division; ``divisible(n)`` must hold."""
        return Poly(tuple((m, c // n) for m, c in self.terms))

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for m, c in sorted(self.terms, key=lambda t: (t[0] == (), t[0])):
            least = c == -(2**31)  # has no negative, and its digits alone are no int
            number = "(-2147483647 - 1)" if least else str(abs(c))
            size = "*".join(m) if m and abs(c) == 1 else "*".join([*m, number])
            text += (" - " if c < 0 and not least else " + ") + size
        text = text[3:] if text.startswith(" + ") else "-" + text[3:]
        if self._lone:
            return text.removeprefix(_UNSIGNED)
        return f"(int)({text})" if self.wraps else text

    @property
    def c(self) -> str:
        """C text that is safe as an operand."""
        text = str(self)
        plain = len(self.terms) < 2 and not text.startswith("-")
        return text if plain or self.wraps else f"({text})"


ZERO = Poly()
