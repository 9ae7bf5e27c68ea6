"""Texts to token ids and back, by the vocabulary of a model file.

Special tokens are found in the text first, what lies between them goes through the vocabulary's
own tokeniser. The ids are those of llama.cpp; docs/tokenizers.md states the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ferro.models import vocabulary as vocabularies
from ferro.models.bpe import BYTES, ByteLevelBpe, GemmaBpe
from ferro.models.merging import SPACE
from ferro.models.pretokenise import PRE_TOKENISERS, PreTokeniser, border
from ferro.models.spm import Spm
from ferro.models.vocabulary import PREFIX, BadVocabulary, Kind, Vocabulary

# Lengths of special tokens that start alike: each is looked for wherever one may start.
MOST_LENGTHS = 256
LONGEST_RUN = 1 << 20  # characters; merging takes a microsecond and 200 bytes for each
WINDOW = 4096  # characters that are tokenised at once at least, where not all ids are wanted


class Unbroken(ValueError):
    """A long text without borders of words."""

    exit_code = 2


class Encoder(Protocol):
    """Ids of a text in which there are no special tokens."""

    def encode(self, text: str, *, first: bool) -> list[int]: ...


class Tokenizer:
    """Encodes and decodes. Immutable; may be shared by threads."""

    def __init__(self, metadata: Mapping[str, Any], pre: str | None = None) -> None:
        """``metadata`` maps keys such as ``tokenizer.ggml.tokens`` to texts, numbers, numpy arrays
        and sequences of texts. ``pre`` is the pre-tokeniser to use in place of the file's.

        Raises BadVocabulary.
        """
        rule = _rule(metadata, pre)
        found = vocabularies.read(metadata, add_bos=rule is not None and rule.add_bos)
        self.vocabulary = found
        self._encoder = _encoder(found, metadata, rule)
        self._specials = Specials(found)
        self._plain = Specials(found, (Kind.USER_DEFINED,))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """The ids of ``text``.

        ``add_special`` puts BOS in front and EOS behind as the file says; ``parse_special`` reads
        control tokens in the text. Lone surrogates count as U+FFFD.
        """
        known = self.vocabulary
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids: list[int] = []
        if add_special and known.add_bos:
            ids.append(known.roles["bos"])
        first = True
        for fragment in (self._specials if parse_special else self._plain).split(text):
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                ids += self._encoder.encode(fragment, first=first)
            first = isinstance(fragment, int)
        if add_special and known.add_eos:
            ids.append(known.roles["eos"])
        return ids

    def first(self, text: str, most: int) -> list[int]:
        """The first ``most`` of the ids that ``encode`` gives with control tokens read and nothing
        added. Of a long text with a byte-level vocabulary no more is looked at than these need.

        Raises Unbroken."""
        found: list[int] = []
        start = 0
        while start < len(text) and len(found) < most:
            end = self._border(text, start + max(WINDOW, 4 * (most - len(found))))
            if end - start > LONGEST_RUN:
                raise Unbroken(f"{end - start} characters in a row have no place to cut")
            found += self.encode(text[start:end], add_special=False)
            start = end
        return found[:most]

    def _border(self, text: str, start: int) -> int:
        """The first place from ``start`` on at which cutting ``text`` changes no ids."""
        if not isinstance(self._encoder, ByteLevelBpe):
            return len(text)
        at = border(text, start)
        while at < len(text) and self._specials.cross(text, at):
            at = border(text, at + 1)
        return at

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that a token stands for; those of control tokens only with ``special``.

        Raises IndexError for an id that is none.
        """
        if not 0 <= token < len(self):
            raise IndexError(f"there is no token {token} (there are {len(self)})")
        text, kind = self.vocabulary.tokens[token], self.vocabulary.kinds[token]
        if kind in (Kind.CONTROL, Kind.UNKNOWN):
            return _bytes(text) if special else b""
        if kind == Kind.USER_DEFINED:
            return _bytes(text)
        if kind == Kind.BYTE:
            return bytes([int(text[3:5], 16)])
        if kind != Kind.NORMAL:
            return b""
        if self.vocabulary.model != "gpt2":
            return _bytes(text.replace(SPACE, " "))
        return b"".join(bytes([BYTES[c]]) if c in BYTES else _bytes(c) for c in text)

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of ``ids``, their pieces one after the other. Bytes that are no UTF-8 become
        U+FFFD. Raises IndexError."""
        pieces = (self.piece(i, special=special) for i in ids)
        return b"".join(pieces).decode("utf-8", "replace")


class Specials:
    """Finds tokens of some kinds in texts: all of the longest token first, then of the next."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        kinds: tuple[Kind, ...] = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED),
    ) -> None:
        chosen = np.isin(np.frombuffer(vocabulary.kinds, np.uint8), kinds)
        self._ids = {vocabulary.tokens[i]: i for i in np.flatnonzero(chosen).tolist()}
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[0], set()).add(len(text))
        most = max(map(len, lengths.values()), default=0)
        if most > MOST_LENGTHS:
            raise vocabulary.wrong(f"special tokens of {most} lengths (at most {MOST_LENGTHS})")
        self._lengths = {first: sorted(found) for first, found in lengths.items()}
        self._longest = max(map(len, self._ids), default=0)
        firsts = "".join(map(re.escape, sorted(lengths)))
        self._start = re.compile(f"[{firsts}]" if firsts else "(?!)")

    def cross(self, text: str, at: int) -> bool:
        """Whether one of the tokens stands around a place in ``text``."""
        return any(
            start + n > at and text[start : start + n] in self._ids
            for start in range(max(0, at - self._longest + 1), at)
            for n in self._lengths.get(text[start], ())
        )

    def split(self, text: str) -> list[str | int]:
        """``text`` as ids and the texts between them; none of these is empty."""
        fragments: list[str | int] = [text] if text else []
        for special in self._present(text):
            fragments = [part for fragment in fragments for part in self._cut(fragment, special)]
        return fragments

    def _present(self, text: str) -> list[str]:
        """The tokens that occur in ``text``, the longest first."""
        found: set[str] = set()
        for match in self._start.finditer(text):
            at = match.start()
            found.update(text[at : at + n] for n in self._lengths[text[at]])
        found &= self._ids.keys()
        return sorted(found, key=lambda special: (-len(_bytes(special)), self._ids[special]))

    def _cut(self, fragment: str | int, special: str) -> list[str | int]:
        if isinstance(fragment, int) or special not in fragment:
            return [fragment]
        between = fragment.split(special)
        parts = [part for text in between for part in (text, self._ids[special])][:-1]
        return [part for part in parts if part != ""]


def _bytes(text: str) -> bytes:
    # what was no UTF-8 in the file is kept as lone surrogates
    return text.encode("utf-8", "surrogateescape")


def _rule(metadata: Mapping[str, Any], pre: str | None) -> PreTokeniser | None:
    """The pre-tokeniser of a byte-level vocabulary."""
    if str(metadata.get(f"{PREFIX}model")) != "gpt2":
        return None
    name = pre or str(metadata.get(f"{PREFIX}pre", ""))
    if name in PRE_TOKENISERS:
        return PRE_TOKENISERS[name]
    problem = f"the pre-tokeniser `{name}` is not known" if name else f"{PREFIX}pre is missing"
    known = ", ".join(PRE_TOKENISERS)
    path = str(getattr(metadata, "path", "metadata"))
    raise BadVocabulary(path, f"{problem} (known, and to be named in its place: {known})")


def _encoder(
    vocabulary: Vocabulary, metadata: Mapping[str, Any], rule: PreTokeniser | None
) -> Encoder:
    if rule is not None:
        return ByteLevelBpe(vocabulary, metadata, rule)
    return Spm(vocabulary) if vocabulary.model == "llama" else GemmaBpe(vocabulary, metadata)
