"""Byte pair encoding: a pair is merged if it is in the list of merges, the earliest one first.

Byte-level (``tokenizer.ggml.model`` gpt2): the bytes of a text are written as 256 printable
characters. Gemma 4's (gemma4): characters as they are, blanks as ``▁``, bytes where a character is
no token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from ferro.models.merging import CACHED, LONGEST_CACHED, SPACE, Words, merge
from ferro.models.pretokenise import PreTokeniser
from ferro.models.spm import byte_ids
from ferro.models.vocabulary import PREFIX, Vocabulary, texts

_LINES = re.compile(r"[^\n]+|\n+")


def _alphabet() -> dict[int, str]:
    """The character for each byte: itself where it is printable, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + n) for n, byte in enumerate(others)
    }


ALPHABET: Final = _alphabet()
BYTES: Final = {character: byte for byte, character in ALPHABET.items()}


class Merges:
    """The rank of each pair: its place in ``tokenizer.ggml.merges``, "left right" each."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        """Raises BadVocabulary if the merges are missing or one of them is no pair."""
        pairs = texts(metadata, "merges")
        for i, pair in enumerate(pairs):
            # symbols hold no blank, so that "left right" names one pair
            if pair.find(" ", 1) < 0:
                raise vocabulary.wrong(f"{PREFIX}merges: entry {i} is no pair: {pair!r:.60}")
        # of equal pairs the first counts
        self._ranks = dict(zip(reversed(pairs), reversed(range(len(pairs))), strict=True))

    def rank(self, left: str, right: str) -> float | None:
        """The place of a pair in the list, if it is there."""
        return self._ranks.get(f"{left} {right}")

    def words(self) -> Words:
        """How a text may be cut before it is merged."""
        return Words("\0".join(self._ranks).replace(" ", ""))


class ByteLevelBpe:
    """Ids of texts without special tokens, by the pieces of a pre-tokeniser."""

    def __init__(
        self, vocabulary: Vocabulary, metadata: Mapping[str, Any], rule: PreTokeniser
    ) -> None:
        self._ids = vocabulary.ids
        self._merges = Merges(vocabulary, metadata)
        self._rule = rule
        self._remembered = lru_cache(CACHED)(self._piece)

    def encode(self, text: str, *, first: bool) -> list[int]:
        """The ids of ``text``, wherever it stands."""
        found: list[int] = []
        for piece in self._rule.pieces(text):
            found += self._remembered(piece) if len(piece) <= LONGEST_CACHED else self._piece(piece)
        return found

    def _piece(self, piece: str) -> tuple[int, ...]:
        word = piece.encode().decode("latin-1").translate(ALPHABET)
        if self._rule.whole and word in self._ids:
            return (self._ids[word],)
        symbols = merge(list(word), self._merges.rank)
        return tuple(i for symbol in symbols for i in self._symbol(symbol))

    def _symbol(self, symbol: str) -> list[int]:
        if symbol in self._ids:
            return [self._ids[symbol]]
        return [self._ids[byte] for byte in symbol if byte in self._ids]


class GemmaBpe:
    """Ids of texts without special tokens: runs of newlines apart, else merges alone."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        self._ids = vocabulary.ids
        self._merges = Merges(vocabulary, metadata)
        self._bytes = byte_ids(vocabulary)
        self._words = self._merges.words()
        self._remembered = lru_cache(CACHED)(self._word)

    def encode(self, text: str, *, first: bool) -> list[int]:
        """The ids of ``text``, wherever it stands."""
        found: list[int] = []
        for line in _LINES.findall(text.replace(" ", SPACE)):
            if line[0] == "\n" and line in self._ids:
                found.append(self._ids[line])
                continue
            for word in self._words.cut(line):
                found += self._remembered(word) if len(word) <= LONGEST_CACHED else self._word(word)
        return found

    def _word(self, word: str) -> tuple[int, ...]:
        symbols = merge(list(word), self._merges.rank)
        return tuple(i for symbol in symbols for i in self._symbol(symbol))

    def _symbol(self, symbol: str) -> list[int]:
        if symbol in self._ids:
            return [self._ids[symbol]]
        found = (self._bytes[byte] for byte in symbol.encode("utf-8", "surrogateescape"))
        return [i for i in found if i is not None]
