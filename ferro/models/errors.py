"""What can be wrong with a model file. Every message names the file and the part that is wrong.

All of these end a command with exit code 2: the file, not the program, is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_PROBLEM = 1000


class ModelError(Exception):
    """Base of all; ``path`` is the file, ``problem`` what is wrong with it: one line of bounded
    length, whatever the texts are that a file puts into it."""

    exit_code = 2

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, _shown(problem)

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def _shown(problem: str) -> str:
    if len(problem) > LONGEST_PROBLEM:
        half = LONGEST_PROBLEM // 2
        problem = f"{problem[:half]} ... {problem[-half:]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in problem)


class NotGguf(ModelError):
    """A file of another kind."""


class UnsupportedVersion(ModelError):
    """A GGUF version or byte order that is not read here."""


class SplitFile(ModelError):
    """One of several files that make a model together."""


class CutShort(ModelError):
    """The file ends before its contents do."""


class Damaged(ModelError):
    """Counts, sizes, offsets or texts that cannot be right."""


class DuplicateName(ModelError):
    """Two tensors or two keys of one name."""


class MissingKey(ModelError):
    """Metadata that the architecture needs."""


class WrongValue(ModelError):
    """Metadata of another type, or outside its range."""


class MissingTensor(ModelError):
    """A tensor that the architecture needs."""


class WrongShape(ModelError):
    """A tensor whose shape does not fit the metadata."""


class UnsupportedType(ModelError):
    """A tensor type that cannot be read."""


class BadNumbers(ModelError):
    """Weights that are not finite, or too large for the form in which they are to be kept."""


class UnsupportedArchitecture(ModelError):
    """An architecture that Ferro does not run."""

    @classmethod
    def named(cls, path: str, name: str, supported: Iterable[str]) -> UnsupportedArchitecture:
        return cls(
            path,
            f"architecture `{name}` is not supported (supported: {', '.join(sorted(supported))})",
        )
