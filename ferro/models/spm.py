"""The SentencePiece tokeniser (``tokenizer.ggml.model`` llama): a pair is merged if the result is a
token, the one with the highest score first."""

from __future__ import annotations

from functools import lru_cache

from ferro.models.merging import CACHED, LONGEST_CACHED, SPACE, Words, merge
from ferro.models.vocabulary import Vocabulary


def byte_ids(vocabulary: Vocabulary) -> tuple[int | None, ...]:
    """The token that stands for each byte, where there is one."""
    return tuple(vocabulary.ids.get(f"<0x{byte:02X}>") for byte in range(256))


class Spm:
    """Ids of texts without special tokens. Blanks are ``▁``; what is no token becomes bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        self._scores = vocabulary.scores
        self._unknown = vocabulary.role("unknown")
        self._bytes = byte_ids(vocabulary)
        self._prefix = " " if vocabulary.add_space_prefix else ""
        self._words = Words("\0".join(vocabulary.tokens))
        self._remembered = lru_cache(CACHED)(self._word)

    def encode(self, text: str, *, first: bool) -> list[int]:
        """The ids of ``text``; ``first``: it follows a special token or nothing, which is where
        the blank goes that some vocabularies put in front."""
        text = (self._prefix if first else "") + text
        found: list[int] = []
        for word in self._words.cut(text.replace(" ", SPACE)):
            found += self._remembered(word) if len(word) <= LONGEST_CACHED else self._word(word)
        return found

    def _word(self, word: str) -> tuple[int, ...]:
        symbols = merge(list(word), self._rank)
        return tuple(i for symbol in symbols for i in self._symbol(symbol))

    def _rank(self, left: str, right: str) -> float | None:
        i = self._ids.get(left + right)
        return None if i is None else -self._scores[i]

    def _symbol(self, symbol: str) -> list[int]:
        if symbol in self._ids:
            return [self._ids[symbol]]
        # As SentencePiece does: a character without bytes of its own is one unknown token.
        found = [self._bytes[byte] for byte in symbol.encode("utf-8", "surrogateescape")]
        if None in found:
            return [] if self._unknown is None else [self._unknown]
        return [i for i in found if i is not None]
