"""Pre-tokenisers: how a text is cut into the pieces inside of which tokens are merged.

A rule is named by ``tokenizer.ggml.pre``. Its patterns are applied one after the other, each inside
the pieces that the one before it left; what a pattern does not match is a piece as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ferro.models.unicode_classes import LETTER, NUMBER, SPACE, kinds

_L = f"A-Za-z{LETTER}"
_N = f"0-9{NUMBER}"
_S = f"\t-\r {SPACE}"

_DIGIT = f"[{_N}]"
# No piece of any rule goes on from a letter or a digit to something else: what is on both sides of
# such a place is cut alike alone and together.
_BORDER = re.compile(f"(?<=[{_L}])(?=[^{_L}])|(?<=[{_N}])(?=[^{_N}])")
_BLANKS = f"[{_S}]+(?![^{_S}])|[{_S}]+"
_GPT2 = f"'(?:[stmd]|re|ve|ll)| ?[{_L}]+| ?[{_N}]+| ?[^{_S}{_L}{_N}]+|{_BLANKS}"
_CONTRACTION = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_WORDS = (
    f"{_CONTRACTION}|[^\r\n{_L}{_N}]?[{_L}]+|[{_N}]{{1,%d}}"
    f"| ?[^{_S}{_L}{_N}]+[\r\n]*|[{_S}]*[\r\n]+|{_BLANKS}"
)
_WINDOW = 4096  # characters that are looked at for a border at a time
_LLAMA3 = _WORDS % 3
_QWEN2 = _WORDS % 1


@dataclass(frozen=True)
class PreTokeniser:
    """A rule. ``whole``: a piece that is a token is not merged; ``add_bos``: what holds when the
    file does not say whether a text starts with BOS."""

    patterns: tuple[str, ...]
    whole: bool = False
    add_bos: bool = False

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(re.compile, self.patterns))

    def pieces(self, text: str) -> list[str]:
        """``text`` in pieces, none of them empty."""
        shape = kinds(text)
        spans = [(0, len(text))]
        for pattern in self._compiled:
            spans = [piece for span in spans for piece in _cut(pattern, shape, *span)]
        return [text[start:stop] for start, stop in spans]


def border(text: str, start: int) -> int:
    """The first place from ``start`` on at which ``text`` can be cut before it is cut into pieces,
    so that the pieces stay the same; its length if there is none."""
    for at in range(max(start, 1), len(text), _WINDOW):
        match = _BORDER.search(kinds(text[at - 1 : at + _WINDOW]), 1)
        if match is not None:
            return at - 1 + match.start()
    return len(text)


def _cut(pattern: re.Pattern[str], shape: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(shape, start, stop):
        if match.start() > start:
            yield start, match.start()
        start = match.end()
        yield match.span()
    if stop > start:
        yield start, stop


def _rules() -> dict[str, PreTokeniser]:
    gpt2 = PreTokeniser((_GPT2,))
    digits = PreTokeniser((_DIGIT, _GPT2))
    llama3 = PreTokeniser((_LLAMA3,), whole=True, add_bos=True)
    qwen2 = PreTokeniser((_QWEN2,))
    names = {
        "gpt-2 phi-2 gigachat mellum": gpt2,
        "smollm starcoder refact command-r codeshell exaone minerva-7b": digits,
        "lfm2 llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0": llama3,
        "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez": qwen2,
    }
    return {name: rule for line, rule in names.items() for name in line.split()}


PRE_TOKENISERS: dict[str, PreTokeniser] = _rules()
