"""What is put in front of texts that are to be embedded, by the task that they are for.

Names are those of the models' own tables (spec: ``config_sentence_transformers.json`` of
EmbeddingGemma); a name is read without regard to case, hyphens and underscores.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass


class NoSuchTask(ValueError):
    """A task that there is not, or one that takes no title."""

    exit_code = 2


@dataclass(frozen=True)
class Task:
    """``prefix`` stands in front of a text; that of a document has a place for its title. ``other``
    are further names."""

    name: str
    prefix: str
    other: tuple[str, ...] = ()

    @property
    def titled(self) -> bool:
        return "{title}" in self.prefix

    def text(self, content: str, title: str | None = None) -> str:
        """The text that is embedded for ``content``. Raises NoSuchTask for a title where there is
        no place for one."""
        if title is not None and not self.titled:
            raise NoSuchTask(f"texts of the task `{self.name}` have no title (documents have)")
        return self.prefix.replace("{title}", title or "none") + content


def _query(name: str, what: str, *other: str) -> Task:
    return Task(name, f"task: {what} | query: ", other)


NONE = Task("none", "")
SEARCHES = ("SearchQuery", "Retrieval", "Retrieval-query", "Reranking", "BitextMining")
COMMON = (
    NONE,
    _query("query", "search result", *SEARCHES),
    Task("document", "title: {title} | text: ", ("Retrieval-document",)),
    _query("question-answering", "question answering"),
    _query("fact-checking", "fact checking"),
    _query("code-retrieval", "code retrieval", "InstructionRetrieval"),
    _query("classification", "classification", "MultilabelClassification"),
    _query("clustering", "clustering"),
)
ALIKE = ("STS", "SentenceSimilarity", "PairClassification")
TASKS: dict[str, tuple[Task, ...]] = {
    "gemma-embedding": (
        *COMMON,
        _query("similarity", "sentence similarity", *ALIKE),
        _query("summarization", "summarization"),
    ),
    "gemma-embedding2": (
        *COMMON,
        _query("similarity", "sentence similarity", *ALIKE, "Summarization"),
    ),
}


def task(architecture: str, name: str | None) -> Task:
    """The task of that name; None is none. Raises NoSuchTask with the names that there are."""
    if name is None:
        return NONE
    if not isinstance(name, str):
        raise NoSuchTask(f"a task goes by its name, not by a {type(name).__name__}")
    known = TASKS.get(architecture, (NONE,))
    names = {_plain(each): found for found in known for each in (found.name, *found.other)}
    if _plain(name) in names:
        return names[_plain(name)]
    close = difflib.get_close_matches(_plain(name), names, n=1)
    meant = f"; did you mean `{names[close[0]].name}`?" if close else ""
    raise NoSuchTask(
        f"there is no task `{name}`{meant} (known: {', '.join(each.name for each in known)})"
    )


def named(architecture: str) -> Iterator[Task]:
    """The tasks of an architecture, for help texts and listings."""
    return iter(TASKS.get(architecture, (NONE,)))


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
