"""Stop strings in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterable


class StopStrings:
    """Lets text through until one of some strings is complete; of that string nothing is shown.

    What may still become a stop string is held back. The string that is complete first counts, of
    several that end at one place the longest, so that the pieces do not matter.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        """Raises ValueError for an empty string."""
        self._strings = tuple(strings)
        if "" in self._strings:
            raise ValueError("a stop string must not be empty")
        self._held = ""
        self.found = ""

    def push(self, text: str) -> str:
        """What may be shown after ``text`` has come; ``found`` is the stop string, if one was."""
        if self.found:
            return ""
        text = self._held + text
        ends = [(text.find(s) + len(s), -len(s), s) for s in self._strings if s in text]
        if ends:
            end, _, self.found = min(ends)
            self._held = ""
            return text[: end - len(self.found)]
        kept = max((_overlap(text, s) for s in self._strings), default=0)
        shown, self._held = text[: len(text) - kept], text[len(text) - kept :]
        return shown

    def finish(self) -> str:
        """What was held back and became no stop string, now that no more text comes."""
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, string: str) -> int:
    """How many characters at the end of ``text`` are the beginning of ``string``."""
    most = min(len(text), len(string) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(string[:n])), 0)
