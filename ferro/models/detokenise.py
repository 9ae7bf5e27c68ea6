"""Tokens to text while they come: a character is given out when its last byte is there."""

from __future__ import annotations

import codecs
from collections.abc import Container

from ferro.models.tokenizer import Tokenizer


class Detokeniser:
    """The text of one stream of tokens.

    The texts of all ``push`` calls and of ``finish``, one after the other, are what
    ``Tokenizer.decode`` gives for the same tokens; none of them ends inside a character.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, special: bool = False, shown: Container[int] = ()
    ) -> None:
        """``special``: control tokens are shown; without it those of ``shown`` are."""
        self._tokenizer = tokenizer
        self._special, self._shown = special, shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that are complete with ``token``, "" if none. Bytes that can no more
        become a character are U+FFFD. Raises IndexError for an id that is none."""
        special = self._special or token in self._shown
        return self._decoder.decode(self._tokenizer.piece(token, special=special))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, else ""."""
        return self._decoder.decode(b"", final=True)

    @property
    def waiting(self) -> bool:
        """Whether bytes of a character that is not complete are held back."""
        return bool(self._decoder.getstate()[0])
